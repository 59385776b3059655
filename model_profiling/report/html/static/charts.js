// Charts take their colours from the page's own variables, so that light, dark and paper need no drawing again.
const CHART_COLOURS = {
  background: "transparent",
  font: getComputedStyle(document.body).fontFamily,
  view: { stroke: null },
  axis: {
    labelColor: "var(--soft)", titleColor: "var(--soft)", gridColor: "var(--line)", domainColor: "var(--line)",
    tickColor: "var(--line)", titleFontWeight: 500, labelFontSize: 12, titleFontSize: 12,
  },
  header: { labelColor: "var(--ink)", titleColor: "var(--soft)", labelFontSize: 12 },
  legend: { labelColor: "var(--ink)", titleColor: "var(--soft)", orient: "bottom", labelFontSize: 12 },
  title: { color: "var(--ink)", subtitleColor: "var(--soft)" },
  text: { color: "var(--ink)" },
  rule: { color: "var(--soft)" },
  tick: { color: "var(--soft)" },
};
const ROWS_SHOWN = 100;

const partsOf = (spec) => spec.layer ?? spec.vconcat ?? spec.hconcat ?? spec.concat ?? (spec.spec ? [spec.spec] : []);

// What fits its width cannot grow by rows as well: a row for each name is counted here.
function rowsHigh(spec) {
  if (typeof spec.height === "number") return spec.height;
  const y = [spec, ...partsOf(spec)].map((part) => part.encoding?.y).find((each) => each?.field);
  if (!y || !["nominal", "ordinal"].includes(y.type)) return null;
  const names = new Set(recordsOf(spec).flat().map((record) => record[y.field]));
  return Math.max(1, names.size) * (spec.height?.step ?? 22);
}

// A single or layered view follows its place by itself; several views beside one another are measured here.
function fitted(spec, room) {
  const across = spec.hconcat ? spec.hconcat.length : spec.columns ?? 1;
  if (spec.vconcat || spec.hconcat || spec.concat || spec.spec) {
    const columns = Math.max(1, room < 560 ? 1 : across);
    const width = Math.max(120, room / columns - 110);
    const inner = (part) => ({ ...part, width: part.width ?? width });
    if (spec.spec) return { ...spec, columns, spec: inner(spec.spec) };
    if (spec.hconcat) return { ...spec, hconcat: undefined, concat: spec.hconcat.map(inner), columns };
    const key = spec.vconcat ? "vconcat" : "concat";
    return { ...spec, ...(spec.concat ? { columns } : {}), [key]: spec[key].map(inner) };
  }
  const height = rowsHigh(spec);
  const faceted = spec.encoding?.column || spec.encoding?.facet || spec.encoding?.row;
  return faceted ? { ...spec, width: spec.width ?? Math.max(120, room - 130) } : { ...spec, width: "container", ...(height ? { height } : {}) };
}

function tooltip(_view, event, _item, value) {
  if (value === null || value === undefined || value === "") hideTip();
  else showTip(event, typeof value === "object" ? Object.entries(value) : [["", value]]);
}

// What is drawn from each set of rows: the fields that a mark tells of when it is pointed at, under their names;
// every field where no mark tells any. Rows that only place labels and lines tell nothing.
function toldOf(spec, told = new Map(), above = undefined, datasets = spec.datasets ?? {}) {
  const rows = spec.data?.values ?? datasets[spec.data?.name] ?? above;
  const named = (channels) => channels.flatMap((each) => (typeof each?.field === "string" ? [[each.field, each.title]] : []));
  const { tooltip: tips, ...places } = spec.encoding ?? {};
  const kept = told.get(rows);
  if (rows && tips && !kept?.pointed) told.set(rows, { pointed: true, fields: new Map(named([tips].flat())) });
  else if (rows && !kept?.pointed && spec.encoding) {
    told.set(rows, { pointed: false, fields: new Map([...(kept?.fields ?? []), ...named(Object.values(places).flat())]) });
  }
  for (const part of partsOf(spec)) toldOf(part, told, rows, datasets);
  return told;
}

const recordsOf = (spec) => [...toldOf(spec).keys()];

function numbersTables(spec, source) {
  const told = [...toldOf(spec)];
  const pointed = told.some(([, { pointed: known }]) => known);
  return told.filter(([rows, { pointed: known }]) => rows.length && (known || !pointed)).flatMap(([records, { fields }]) => {
    const columns = [...fields.keys()].filter((field) => !field.startsWith("_") && records.some((record) => field in record));
    if (!columns.length) return [];
    const shown = records.slice(0, ROWS_SHOWN);
    const numbers = columns.flatMap((field, place) => (typeof shown[0][field] === "number" ? [place] : []));
    const rows = shown.map((record) => columns.map((field) => (record[field] ?? "-") + ""));
    const titles = columns.map((field) => (typeof fields.get(field) === "string" ? fields.get(field) : field));
    const rest = records.length - shown.length;
    return [makeTable(titles, rows, numbers, source),
      rest > 0 ? make("p", { class: "note" }, `The first ${shown.length} of ${records.length} rows.`) : null].filter(Boolean);
  });
}

const legendColumns = (room) => Math.max(1, Math.floor((room - 60) / 145));

function drawChart(place, spec) {
  const room = place.clientWidth || 640;
  const columns = legendColumns(room);
  const options = {
    actions: false, ast: true, renderer: "svg", defaultStyle: false, tooltip,
    config: { ...CHART_COLOURS, legend: { ...CHART_COLOURS.legend, columns } },
  };
  const inner = make("div", { "aria-hidden": "true" });
  place.dataset.columns = columns;
  place.replaceChildren(inner);
  vegaEmbed(inner, fitted(spec, room), options).then(
    () => { place.dataset.drawn = "yes"; },
    (problem) => { place.textContent = `This chart could not be drawn: ${problem.message}`; },
  );
}

for (const chart of document.querySelectorAll("figure.chart")) {
  const place = chart.querySelector(".drawing");
  const spec = dataOf(chart);
  drawChart(place, spec);
  // Bars follow their place by themselves; how a legend is laid out, and charts beside one another, do not.
  new ResizeObserver(() => {
    const room = place.clientWidth;
    if (room && String(legendColumns(room)) !== place.dataset.columns) drawChart(place, spec);
  }).observe(place);
  const numbers = chart.querySelector("details.numbers");
  numbers.addEventListener("toggle", () => {
    if (numbers.childElementCount === 1) numbers.append(...numbersTables(spec, chart.dataset.source ?? ""));
  });
}
// What was folded had no width until now.
addEventListener("toggle", ({ target }) => { if (target.querySelector(".drawing")) dispatchEvent(new Event("resize")); }, true);
