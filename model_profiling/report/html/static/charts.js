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
  text: { color: "var(--ink)", lineBreak: "\n" },
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

const LINE = 13;
const ruler = document.createElement("canvas").getContext("2d");
ruler.font = `12px ${CHART_COLOURS.font}`;

// Texts as lines that fit into `room`; a name goes on in the next line after a space, _, / or the point of a path.
function wrapped(texts, room) {
  return [texts].flat().flatMap((text) => {
    const lines = [""];
    for (const part of text.split(/(?<=[ _/]|[A-Za-z]\.(?=[A-Za-z]))/)) {
      if (lines.at(-1) && ruler.measureText((lines.at(-1) + part).trimEnd()).width > room) lines.push("");
      lines[lines.length - 1] += part;
    }
    return lines.map((line) => line.trimEnd());
  });
}

// What follows from the width of a chart's place: the columns of its legend, the lines of its texts.
function layOut(spec, room) {
  const named = spec.layer.some(({ encoding }) => encoding.text?.field === "_label");
  const titles = spec.layer.map(({ encoding }) => encoding.x?.title && wrapped(encoding.x.title, room - 60));
  return {
    columns: Math.max(1, Math.floor((room - 60) / 145)), titles,
    labels: named ? spec.datasets.rows.map((row) => wrapped(row._label, room - 12)) : [],
  };
}

// Labels stand above the marks of their rows, which grow by the lines that the longest label has more.
function withTexts(given, { titles, labels }) {
  const spec = structuredClone(given);
  titles.forEach((lines, place) => { if (lines) spec.layer[place].encoding.x.title = lines; });
  labels.forEach((lines, place) => { spec.datasets.rows[place]._label = lines.join("\n"); });
  const more = (LINE * (Math.max(1, ...labels.map((lines) => lines.length)) - 1) * labels.length) / spec.height;
  if (!more) return spec;
  const moved = new Set();
  for (const { data, encoding } of spec.layer) {
    for (const { field, scale } of [encoding.y, encoding.y2].filter((each) => each?.field)) {
      if (scale) scale.domain = [labels.length * (1 + more), 0];
      if (moved.has(`${data.name} ${field}`)) continue;
      moved.add(`${data.name} ${field}`);
      for (const record of spec.datasets[data.name]) record[field] += more * Math.ceil(record[field]);
    }
  }
  spec.height *= 1 + more;
  return spec;
}

function drawChart(place, spec) {
  const layout = layOut(spec, place.clientWidth || 640);
  const options = {
    actions: false, ast: true, renderer: "svg", defaultStyle: false, tooltip,
    config: { ...CHART_COLOURS, legend: { ...CHART_COLOURS.legend, columns: layout.columns } },
  };
  const fitted = withTexts(spec, layout);
  const inner = make("div", { "aria-hidden": "true" });
  place.replaceChildren(inner);
  vegaEmbed(inner, { ...fitted, width: "container", height: rowsHigh(fitted) }, options).then(
    () => { place.dataset.drawn = "yes"; },
    (problem) => { place.textContent = `This chart could not be drawn: ${problem.message}`; },
  );
  return JSON.stringify(layout);
}

for (const chart of document.querySelectorAll("figure.chart")) {
  const place = chart.querySelector(".drawing");
  const spec = dataOf(chart);
  let drawn = drawChart(place, spec);
  // Bars follow their place by themselves; how texts and a legend are laid out does not.
  new ResizeObserver(() => {
    const room = place.clientWidth;
    if (room && JSON.stringify(layOut(spec, room)) !== drawn) drawn = drawChart(place, spec);
  }).observe(place);
  const numbers = chart.querySelector("details.numbers");
  numbers.addEventListener("toggle", () => {
    if (numbers.childElementCount === 1) numbers.append(...numbersTables(spec, chart.dataset.source ?? ""));
  });
}
// What was folded had no width until now.
addEventListener("toggle", ({ target }) => { if (target.querySelector(".drawing")) dispatchEvent(new Event("resize")); }, true);
