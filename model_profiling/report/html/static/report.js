for (const figure of document.querySelectorAll("figure.chart")) {
  const spec = JSON.parse(figure.querySelector("script").textContent);
  spec.width = "container";
  vegaEmbed(figure.querySelector(".drawing"), spec, { actions: false, ast: true, renderer: "svg", defaultStyle: false });
}
