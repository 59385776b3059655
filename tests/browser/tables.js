(among) => [...document.querySelectorAll(among)].filter((table) => table.checkVisibility()).map((table) => {
  const cells = (row) => [...row.cells].map((cell) => cell.textContent);
  const above = table.closest('details:not(.numbers)')?.querySelector('summary');
  return {
    chart: Boolean(table.closest('figure.chart')),
    section: table.closest('section').querySelector('h2')?.textContent ?? 'In short',
    below: above?.textContent ?? '',
    source: table.dataset.source ?? '',
    headers: cells(table.tHead.rows[0]),
    rows: [...table.tBodies[0].rows].filter((row) => row.className !== 'inside').map(cells),
  };
})
