// Elements are made of text only: nothing that a run names is ever read as HTML.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
}

const present = (nodes) => nodes.filter((node) => node !== null && node !== undefined);

const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
// Every explorer of a kind: the script's own in place of what a page without one shows.
function explore(kind, show) {
  for (const place of document.querySelectorAll(`.explorer[data-kind="${kind}"]`)) {
    if (place.dataset.title) place.append(make("h3", {}, place.dataset.title));
    show(place);
    place.querySelector(":scope > .instead").hidden = true;
  }
}

const dataOf = (node) => JSON.parse(node.querySelector(":scope > script").textContent);

const figure = (text) => Number.parseFloat(text.replaceAll(",", ""));

// How rows are sorted by the text of a cell; those without a number stand last.
function ordering(text, down, numeric) {
  const missing = (row) => numeric && Number.isNaN(figure(text(row)));
  const order = (a, b) => (numeric ? figure(text(a)) - figure(text(b)) : text(a).localeCompare(text(b), undefined, { numeric: true }));
  return (a, b) => missing(a) - missing(b) || (missing(a) ? 0 : down ? order(b, a) : order(a, b));
}

// A long name goes on in the next line after _, / or . only.
const breakable = (text) => text.split(/(\S{18,})/).flatMap((word, odd) => (odd % 2 ? word.split(/(?<=[A-Za-z0-9][_/])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9]\.)(?=[A-Za-z])/) : [word])
  .flatMap((part, place) => (place ? [make("wbr"), part] : [part])));

// A table of texts; `numbers` are the columns that stand to the right.
function makeTable(headers, rows, numbers, source) {
  const kind = (column) => (numbers.includes(column) ? { class: "number" } : {});
  return make("div", { class: "table" }, make("table", { "data-source": source },
    make("thead", {}, make("tr", {}, ...headers.map((text, column) => make("th", { scope: "col", ...kind(column) }, text)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, column) => make("td", kind(column), ...breakable(text))))))));
}

function chooser(label, options, chosen, change) {
  const select = make("select", { onchange: () => change(Number(select.value)) },
    ...options.map((text, place) => make("option", { value: place, selected: place === chosen }, text)));
  return make("label", {}, label, select);
}

// Beside the pointer: pairs of what and how much.
const tip = document.body.appendChild(make("dl", { id: "tip", hidden: true, "aria-hidden": "true" }));

function showTip(event, pairs) {
  tip.replaceChildren(...pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(4, event.clientY + height + 24 > innerHeight ? event.clientY - height - 12 : event.clientY + 14)}px`;
}

const hideTip = () => { tip.hidden = true; };
