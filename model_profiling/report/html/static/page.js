// Light or dark as the system says until the reader says otherwise; nothing is stored.
{
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const name = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  name();
  button.hidden = false;
}

// A table wider than its place is scrolled by keyboard too.
{
  let asked = false;
  const reachable = () => {
    asked = false;
    for (const place of document.querySelectorAll(".table")) {
      const wide = place.scrollWidth > place.clientWidth + 1;
      if (wide === place.hasAttribute("tabindex")) continue;
      if (!wide) { for (const name of ["tabindex", "role", "aria-label"]) place.removeAttribute(name); continue; }
      const heading = place.closest("section")?.querySelector("h2")?.textContent ?? "report";
      fill(place, { tabindex: 0, role: "group", "aria-label": `Table of ${heading}, scrolls sideways` }, []);
    }
  };
  const later = () => {
    if (!asked) requestAnimationFrame(reachable);
    asked = true;
  };
  new ResizeObserver(later).observe(document.body);
  addEventListener("toggle", later, true);
  addEventListener("tables", later);
}

// Tables that a click on a header sorts.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(ordering((row) => row.cells[column].textContent, down, head.classList.contains("number"))));
    };
    head.replaceChildren(make("button", { type: "button", onclick: sort }, head.textContent));
  });
}

// Which section is being read.
{
  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target.id) : seen.delete(target.id);
    const first = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) id === first ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current");
  }, { rootMargin: "-10% 0px -60% 0px" });
  for (const id of links.keys()) watch.observe(document.getElementById(id));
}

// On paper everything is open.
{
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open]):not(.numbers)")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => { for (const details of opened) details.open = false; });
}
