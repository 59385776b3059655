// Charts take their colours from the page's own variables, so that light, dark and paper need no drawing again.
const CHART_COLOURS = {
  background: "transparent",
  font: getComputedStyle(document.body).fontFamily,
  view: { stroke: null },
  axis: {
    labelColor: "var(--soft)", titleColor: "var(--soft)", gridColor: "var(--line)", domainColor: "var(--line)",
    tickColor: "var(--line)", titleFontWeight: 500, labelFontSize: 12, titleFontSize: 12,
  },
  legend: { labelColor: "var(--ink)", titleColor: "var(--soft)", orient: "bottom", labelFontSize: 12 },
  title: { color: "var(--ink)", subtitleColor: "var(--soft)" },
  text: { color: "var(--ink)" },
  rule: { color: "var(--soft)" },
  tick: { color: "var(--soft)" },
};
const ROWS_SHOWN = 100;

// What fits its width cannot grow by rows as well: a row for each name is counted here.
function rowsHigh(spec) {
  if (typeof spec.height === "number") return spec.height;
  const y = spec.layer[0].encoding.y;
  return new Set(recordsOf(spec).flat().map((record) => record[y.field])).size * spec.height.step;
}

function tooltip(_view, event, _item, value) {
  if (value === null || value === undefined || value === "") hideTip();
  else showTip(event, typeof value === "object" ? Object.entries(value) : [["", value]]);
}

// What is drawn from each set of rows: the fields that a mark tells of when it is pointed at, under their names.
function toldOf(spec) {
  const told = new Map();
  for (const { data, encoding } of spec.layer) {
    if (encoding.tooltip) told.set(spec.datasets[data.name], new Map(encoding.tooltip.map(({ field, title }) => [field, title])));
  }
  return told;
}

const recordsOf = (spec) => [...toldOf(spec).keys()];

function numbersTables(spec, source) {
  return [...toldOf(spec)].filter(([records]) => records.length).flatMap(([records, fields]) => {
    const columns = [...fields.keys()].filter((field) => records.some((record) => field in record));
    const shown = records.slice(0, ROWS_SHOWN);
    const numbers = columns.flatMap((field, place) => (typeof shown[0][field] === "number" ? [place] : []));
    const rows = shown.map((record) => columns.map((field) => (record[field] ?? "-") + ""));
    const rest = records.length - shown.length;
    return present([makeTable(columns.map((field) => fields.get(field)), rows, numbers, source),
      rest > 0 ? make("p", { class: "note" }, `The first ${shown.length} of ${records.length} rows.`) : null]);
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
  vegaEmbed(inner, { ...spec, width: "container", height: rowsHigh(spec) }, options).then(
    () => { place.dataset.drawn = "yes"; },
    (problem) => { place.textContent = `This chart could not be drawn: ${problem.message}`; },
  );
}

for (const chart of document.querySelectorAll("figure.chart")) {
  const place = chart.querySelector(".drawing");
  const spec = dataOf(chart);
  drawChart(place, spec);
  // Bars follow their place by themselves; how a legend is laid out does not.
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
