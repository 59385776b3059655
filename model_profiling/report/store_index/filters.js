// One choice for models and devices, charts and runs; which charts in which order is said beside them.
const HEADLINE = "one for each model and device";
const DAYS = [["all", Infinity], ["last 90 days", 90], ["last 30 days", 30], ["last 7 days", 7]];
const SHOWN = [
  ["all", () => true],
  ["changed", (history) => history.last !== null],
  ["slower", (history) => history.percent > 0],
  ["faster", (history) => history.percent < 0],
];
const rank = ({ percent }) => (percent > 0 ? 2 : percent < 0 ? 1 : 0);
const byName = (a, b) => a.place - b.place;
const ORDERS = [
  ["slower first", (a, b) => rank(b) - rank(a) || b.percent - a.percent || byName(a, b)],
  ["latest change first", (a, b) => since(b) - since(a) || byName(a, b)],
  ["name", byName],
  ["longest latency first", (a, b) => b.ms.at(-1) - a.ms.at(-1)],
];
const since = (history) => (history.last ? RUNS[history.runs[history.last[0]]].at : 0);

const labels = (...selects) => selects.map((select) => select.parentElement);

class Filters {
  constructor(place) {
    const names = (values) => ["all", ...[...new Set(values)].filter(Boolean).sort((a, b) => a.localeCompare(b, "en", { numeric: true }))];
    const series = [...new Set(HISTORIES.map((history) => history.series))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    this.search = make("input", { type: "search", placeholder: "model, device, commit", oninput: () => this.tell() });
    this.model = this.choice("Model", names(RUNS.map((run) => run.model)));
    this.format = this.choice("Format", names(RUNS.map((run) => run.format)));
    this.device = this.choice("Device", names(RUNS.map((run) => run.device)));
    this.days = this.choice("Dates", DAYS.map(([name]) => name));
    this.series = this.choice("Experiment", [HEADLINE, "all", ...series]);
    this.shown = this.choice("Charts", SHOWN.map(([name]) => name));
    this.order = this.choice("Order", ORDERS.map(([name]) => name));
    this.all = [this.model, this.format, this.device, this.days, this.series, this.shown, this.order];
    this.clear = make("button", { type: "button", onclick: () => { this.reset(); this.search.focus(); } }, "Clear");
    place.append(make("div", { class: "controls" }, make("label", {}, "Search", this.search), ...labels(this.model, this.format, this.device, this.days), this.clear));
    this.ofCharts = make("div", { class: "controls" }, ...labels(this.shown, this.order, this.series));
    place.hidden = false;
  }

  choice(label, options) {
    const select = make("select", { name: label.toLowerCase(), onchange: () => this.tell() }, ...options.map((text) => make("option", { value: text }, text)));
    make("label", {}, label, select);
    return select;
  }

  reset() {
    this.search.value = "";
    for (const select of this.all) select.selectedIndex = 0;
    this.tell();
  }

  get changedByReader() {
    return this.search.value !== "" || this.all.some((select) => select.selectedIndex > 0);
  }

  tell() {
    this.words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const days = DAYS[this.days.selectedIndex][1];
    this.from = Number.isFinite(days) ? NEWEST - days * 86_400_000 : -Infinity;
    this.clear.disabled = !this.changedByReader;
    dispatchEvent(new Event("filter"));
  }

  // Whether something with a model, a format and a device is asked for.
  asks({ model, format, device }) {
    const fits = (select, value) => select.value === "all" || value === undefined || select.value === value;
    return fits(this.model, model) && fits(this.format, format) && fits(this.device, device);
  }

  finds(text) {
    return this.words.every((word) => text.includes(word));
  }

  runs() {
    return RUNS.filter((run) => this.asks(run) && run.at >= this.from && this.finds(run.found));
  }

  histories() {
    const series = this.series.value;
    const chosen = (history) => (series === HEADLINE ? history.headline : series === "all" || series === history.series);
    return HISTORIES
      .filter((history) => this.asks(history) && chosen(history) && this.finds(history.found) && SHOWN[this.shown.selectedIndex][1](history))
      .filter((history) => RUNS[history.runs.at(-1)].at >= this.from)
      .sort(ORDERS[this.order.selectedIndex][1]);
  }
}

const filters = new Filters(document.getElementById("filters"));

// The table of models and devices is in the page already: rows and columns are hidden, not made anew.
addEventListener("filter", () => {
  const table = document.querySelector(".matrix");
  if (!table) return;
  const runs = filters.runs();
  const programs = new Set(runs.map((run) => `${run.model}\n${run.format}`));
  const devices = new Set(runs.map((run) => run.device));
  for (const row of table.tBodies[0].rows) row.hidden = !programs.has(`${row.dataset.model}\n${row.dataset.format}`);
  for (const cell of table.querySelectorAll("[data-device]")) cell.hidden = !devices.has(cell.dataset.device);
});
