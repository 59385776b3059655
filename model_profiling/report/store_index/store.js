// The page's data, with every text in its place; and figures as the tables of the page write them.
const STORE = JSON.parse(document.getElementById("store").textContent);
const NAMED = ["model", "format", "device", "kernels", "state", "commit", "branch", "tags", "noReport"];
const RUNS = STORE.runs.map(([id, measured, ms, report, ...places]) => {
  const run = { id, measured, ms, report, at: Date.parse(`${measured.replace(" ", "T")}Z`) };
  NAMED.forEach((name, column) => { run[name] = STORE.texts[places[column]]; });
  run.found = [id, measured, ...NAMED.map((name) => run[name])].join("\n").toLowerCase();
  return run;
});
const NEWEST = Math.max(...RUNS.map((run) => run.at));
const HISTORIES = STORE.histories.map((history, place) => {
  const series = history.threads ? `${history.experiment}, ${history.threads} thread${history.threads === 1 ? "" : "s"}` : history.experiment;
  const last = history.changes.at(-1) ?? null;
  const percent = last ? 100 * last[3] : 0;
  const drifts = last !== null && last[4] !== null;
  const commits = new Set(history.runs.map((run) => RUNS[run].commit));
  const found = [history.model, history.format, history.device, series, ...commits].join("\n").toLowerCase();
  return { ...history, place, series, last, percent, drifts, found };
});

const decimals = (ms) => (ms >= 100 ? 1 : ms >= 10 ? 2 : ms >= 0.1 ? 3 : 4);
const milliseconds = (ms) => (ms === null ? "-" : ms.toFixed(decimals(Math.abs(ms))));
const day = (time) => new Date(time).toISOString().slice(0, 10);
const spanned = (first, last) => (first === last ? first : `${first} to ${last}`);
const unbroken = (text) => make("span", { class: "nowrap" }, text);
const counted = (count, one, more = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;
const changed = (percent, drifts) => `${Math.abs(percent).toFixed(1)}% ${percent > 0 ? "slower" : "faster"}${drifts ? " little by little" : ""}`;

function badge(percent, drifts) {
  return make("span", { class: percent > 0 ? "slower" : "faster" },
    make("span", { "aria-hidden": "true" }, percent > 0 ? "\u25B2 " : "\u25BC "), changed(percent, drifts));
}

// A link to a run's report, or why there is none.
function reportOf(run, text = "report") {
  return run.report ? make("a", { href: run.report }, text) : make("span", { class: "soft" }, run.noReport || "no report");
}
