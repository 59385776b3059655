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
const ROWS_SHOWN = 500;

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

// Every field that is drawn, with the name it is drawn under.
function fieldsOf(spec, found = new Map()) {
  for (const channel of Object.values(spec.encoding ?? {}).flat()) {
    const field = channel?.field;
    if (typeof field === "string" && !found.get(field)) found.set(field, typeof channel.title === "string" ? channel.title : "");
  }
  for (const part of partsOf(spec)) fieldsOf(part, found);
  return found;
}

function recordsOf(spec, datasets = spec.datasets ?? {}) {
  const own = spec.data?.values ?? datasets[spec.data?.name] ?? [];
  return [own, ...partsOf(spec).flatMap((part) => recordsOf(part, datasets))].filter((records) => records.length);
}

function numbersTables(spec, source) {
  const fields = fieldsOf(spec);
  const seen = new Set();
  return recordsOf(spec).flatMap((records) => {
    const known = Object.keys(records[0]).join();
    if (seen.has(records) || seen.has(`${known} ${records.length}`)) return [];
    seen.add(records).add(`${known} ${records.length}`);
    const columns = [...fields.keys()].filter((field) => records.some((record) => field in record));
    const shown = records.slice(0, ROWS_SHOWN);
    const numbers = columns.flatMap((field, place) => (typeof shown[0][field] === "number" ? [place] : []));
    const rows = shown.map((record) => columns.map((field) => (record[field] ?? "-") + ""));
    const table = makeTable(columns.map((field) => fields.get(field) || field), rows, numbers, source);
    const rest = records.length - shown.length;
    return rest > 0 ? [table, make("p", { class: "note" }, `The first ${shown.length} of ${records.length} rows; all are in ${source.split("#")[0]}.`)] : [table];
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
addEventListener("toggle", () => dispatchEvent(new Event("resize")), true);
