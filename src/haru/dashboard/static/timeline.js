// The timeline: clock times in the browser's zone; dragging over the bars chooses a range, which goes into the address.
"use strict";

(() => {
  let drag = null;
  const moment = (panel, lane, x) => {
    const box = lane.getBoundingClientRect(), part = Math.max(0, Math.min(1, (x - box.left) / box.width));
    return Number(panel.dataset.since) + part * (Number(panel.dataset.until) - Number(panel.dataset.since));
  };
  function clocks() {
    document.querySelectorAll("[data-clock]").forEach((label) => {
      const when = new Date(label.dataset.clock), panel = label.closest("[data-since]");
      const long = panel && Number(panel.dataset.until) - Number(panel.dataset.since) > 2 * 86400000;
      const text = long ? when.toLocaleDateString([], { month: "2-digit", day: "2-digit" }) : when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
      if (label.textContent !== text) label.textContent = text;
    });
  }
  document.addEventListener("pointerdown", (event) => {
    const lane = event.target.closest && event.target.closest(".time .lane");
    if (!lane || event.button) return;
    drag = { lane, panel: lane.closest(".time"), from: event.clientX, shown: null };
  });
  document.addEventListener("pointermove", (event) => {
    if (!drag || Math.abs(event.clientX - drag.from) < 5) return;
    if (!drag.shown) {
      drag.shown = document.createElement("div");
      drag.shown.className = "selection";
      document.body.append(drag.shown);
    }
    const box = drag.panel.getBoundingClientRect(), left = Math.min(event.clientX, drag.from);
    Object.assign(drag.shown.style, { left: `${left + scrollX}px`, top: `${box.top + scrollY}px`, width: `${Math.abs(event.clientX - drag.from)}px`, height: `${box.height}px` });
    event.preventDefault();
  });
  document.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { lane, panel, from, shown } = drag;
    drag = null;
    if (!shown) return;
    shown.remove();
    const times = [from, event.clientX].map((x) => moment(panel, lane, x)).sort((one, other) => one - other);
    if (times[1] - times[0] < 2000) return;
    const address = new URL(location.href);
    address.searchParams.delete("range");
    ["from", "to"].forEach((name, at) => address.searchParams.set(name, new Date(times[at]).toISOString().slice(0, 19) + "Z"));
    document.addEventListener("click", (click) => { click.preventDefault(); click.stopPropagation(); }, { capture: true, once: true });
    setTimeout(() => swap(address.href, true), 0);
  });
  document.addEventListener("dragstart", (event) => { if (event.target.closest && event.target.closest(".time .lane")) event.preventDefault(); });
  document.addEventListener("haru:shown", clocks);
  addEventListener("DOMContentLoaded", clocks);
})();
