// Charts by uPlot: stacked bands of cards over time. data-chart has x (seconds), series (name, look or state, values).
"use strict";

(() => {
  const drawn = new WeakMap();

  // A CSS colour that may be light-dark(): resolved by an element.
  function colour(name) {
    const probe = document.createElement("span");
    probe.hidden = true;
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }
  function fillOf(look) {
    const [first, pattern] = look.split(" ");
    const ground = colour(`--${first}`);
    if (!pattern || pattern === "p0") return ground;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.fillStyle = ground;
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = pen.fillStyle = "#10161c66";
    pen.lineWidth = 1.6;
    if (pattern === "p4") pen.fillRect(0, 0, 8, 2.6);
    else if (pattern === "p5") { pen.fillRect(0, 0, 8, 1.5); pen.fillRect(0, 1.5, 1.5, 6.5); }
    else if (pattern === "p2") { pen.beginPath(); pen.arc(4, 4, 1.5, 0, 7); pen.fill(); }
    else {
      const flip = pattern === "p3";
      for (const shift of [-8, 0, 8]) { pen.beginPath(); pen.moveTo(shift, flip ? 0 : 8); pen.lineTo(shift + 8, flip ? 8 : 0); pen.stroke(); }
    }
    return pen.createPattern(tile, "repeat");
  }
  function stacked(series) {
    const sums = [];
    return series.map(({ values }) => values.map((value, at) => value === null ? null : (sums[at] = (sums[at] || 0) + value)));
  }
  // The browser's own time, as all ages on the page; the day where it begins.
  function times(_, ticks, __, ___, step) {
    return ticks.map((tick, at) => {
      const when = new Date(tick * 1000), two = (number) => String(number).padStart(2, "0");
      const day = `${two(when.getMonth() + 1)}-${two(when.getDate())}`;
      if (step >= 86400) return day;
      const clock = `${two(when.getHours())}:${two(when.getMinutes())}${step < 60 ? `:${two(when.getSeconds())}` : ""}`;
      return at && when.getDate() !== new Date(ticks[at - 1] * 1000).getDate() ? `${clock}\n${day}` : clock;
    });
  }
  // An axis as wide as its longest number, in a font of 12 px.
  function wide(_, texts) {
    return Math.max(46, 22 + 8 * Math.max(0, ...(texts || []).map((text) => text.length)));
  }
  function options(box, spec, shown) {
    const looks = spec.series.map(({ look }) => look).reverse();
    const quiet = colour("--quiet"), line = colour("--line");
    const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: `12px ${getComputedStyle(document.body).fontFamily}` };
    const round = (value) => value === null || value === undefined ? "–" : String(Math.round(value * 10) / 10);
    return {
      width: Math.max(200, box.clientWidth),
      height: Number(box.dataset.height),
      padding: [10, 8, 0, 0],
      scales: { x: { time: true, range: () => spec.range || [spec.x[0], spec.x[spec.x.length - 1]] }, y: { range: (_, __, most) => [0, Math.max(1, spec.most || most)] } },
      axes: [{ ...axis, values: times, space: 70 }, { ...axis, size: wide, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5], values: (_, ticks) => ticks.map((tick) => tick.toLocaleString()) }],
      cursor: { points: { show: false }, drag: { x: Boolean(spec.zoom), y: false, setScale: false } },
      legend: { show: spec.legend !== false, live: true, markers: { width: 0, fill: (_, index) => index ? colour(`--${looks[index - 1].split(" ")[0]}`) : "transparent" } },
      hooks: spec.zoom ? { setSelect: [(plot) => zoomed(plot, spec)] } : {},
      series: [
        { value: (_, at) => at === null ? "–" : new Date(at * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short", hour12: false }) },
        ...spec.series.map((each) => {
          const fill = fillOf(each.look);
          return { label: each.name, fill, stroke: colour("--ground"), width: 0.5, points: { show: false }, spanGaps: false, paths: uPlot.paths.stepped({ align: 1 }), value: (_, __, index, at) => at === null ? "–" : round(shown.values[index - 1][at]) };
        }).reverse(),
      ],
    };
  }
  function zoomed(plot, spec) {
    const { left, width } = plot.select;
    if (width < 5) return;
    const from = Math.round(plot.posToVal(left, "x")), to = Math.round(plot.posToVal(left + width, "x"));
    const address = new URL(location.href);
    address.searchParams.delete("range");
    address.searchParams.set("from", new Date(from * 1000).toISOString().slice(0, 19) + "Z");
    address.searchParams.set("to", new Date(to * 1000).toISOString().slice(0, 19) + "Z");
    swap(address.href, true);
  }
  // The highest band is drawn first, and each lower one over it.
  function draw(box, force) {
    const text = box.dataset.chart, known = drawn.get(box);
    if (known && known.text === text && !force) return;
    const spec = JSON.parse(text), shape = JSON.stringify(spec.series.map(({ name, look }) => [name, look]));
    const data = [spec.x, ...stacked(spec.series).reverse()], values = spec.series.map(({ values }) => values).reverse();
    if (known && known.shape === shape && !force) {
      known.shown.values = values;
      Object.assign(known.spec, spec);
      known.plot.setData(data);
      known.text = text;
      return;
    }
    if (known) known.plot.destroy();
    box.replaceChildren();
    const shown = { values };
    const plot = new uPlot(options(box, spec, shown), data, box);
    drawn.set(box, { plot, text, shape, spec, shown });
    watch.observe(box);
  }
  const watch = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const known = drawn.get(target);
      if (known && target.clientWidth && Math.abs(known.plot.width - target.clientWidth) > 1) known.plot.setSize({ width: target.clientWidth, height: Number(target.dataset.height) });
    }
  });
  window.drawCharts = (root, force = false) => {
    if (!window.uPlot) return;
    root.querySelectorAll(".chart[data-chart]").forEach((box) => draw(box, force));
  };
  document.addEventListener("haru:theme", () => drawCharts(document, true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts(document, true));
})();
