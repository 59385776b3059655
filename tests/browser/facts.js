() => [...document.querySelectorAll('.sides > div')].map((side) => {
  const names = [...side.querySelectorAll('dt')];
  const facts = names.map((name) => [name.textContent, name.nextElementSibling.textContent]);
  const { series, operator } = side.dataset;
  return { series, operator: Number(operator), facts: Object.fromEntries(facts) };
})
