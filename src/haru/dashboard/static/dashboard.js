// Theme, live update and arrow keys. Without it the pages work too: they are then as old as their last load.
"use strict";

const THEMES = ["system", "light", "dark"];
const SLOWEST = 10000;

// At once, before the page is painted.
function theme() {
  try { return localStorage.getItem("haru-theme") || "system"; } catch { return "system"; }
}
function applyTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}
applyTheme(theme());

function themeButton() {
  const button = document.getElementById("theme");
  button.hidden = false;
  button.textContent = `Theme: ${theme()}`;
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
    try { localStorage.setItem("haru-theme", next); } catch { /* it lasts as long as the page */ }
    applyTheme(next);
    button.textContent = `Theme: ${next}`;
  });
}

// One stop of the tab key for the whole map; arrow keys move between cards and rows.
function cardLinks(row) { return [...row.querySelectorAll(".cards a")]; }
function oneStop(content) {
  content.querySelectorAll(".places .cards a").forEach((link, number) => { link.tabIndex = number ? -1 : 0; });
}
function focusOn(link) {
  if (!link) return;
  document.querySelectorAll('.cards a[tabindex="0"]').forEach((other) => { other.tabIndex = -1; });
  link.tabIndex = 0;
  link.focus();
}
function beside(row, step) {
  let next = row;
  do { next = step > 0 ? next.nextElementSibling : next.previousElementSibling; } while (next && !cardLinks(next).length);
  return next;
}
function arrowKeys(event) {
  const link = event.target.closest && event.target.closest(".cards a");
  if (!link || event.altKey || event.ctrlKey || event.metaKey) return;
  const row = link.closest(".place");
  const links = cardLinks(row);
  const at = links.indexOf(link);
  const column = (step) => { const next = beside(row, step); if (next) { const there = cardLinks(next); focusOn(there[Math.min(at, there.length - 1)]); } };
  const moves = {
    ArrowRight: () => focusOn(links[at + 1]),
    ArrowLeft: () => focusOn(links[at - 1]),
    Home: () => focusOn(links[0]),
    End: () => focusOn(links[links.length - 1]),
    ArrowDown: () => column(1),
    ArrowUp: () => column(-1),
  };
  if (moves[event.key]) { moves[event.key](); event.preventDefault(); }
}

// Live: the server says that something changed; the page then asks for itself and exchanges its content.
function keyOf(element) {
  const holder = element.closest("[data-key]");
  return holder && [holder.dataset.key, [...holder.querySelectorAll("a, summary, pre")].indexOf(element)];
}
function exchange(content, fresh) {
  const focused = content.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  const open = [...content.querySelectorAll("details[open][data-key]")].map((each) => each.dataset.key);
  content.replaceChildren(...fresh.childNodes);
  content.dataset.version = fresh.dataset.version;
  content.querySelectorAll("details[data-key]").forEach((each) => { each.open = open.includes(each.dataset.key); });
  oneStop(content);
  if (!focused) return;
  const holder = [...content.querySelectorAll("[data-key]")].find((each) => each.dataset.key === focused[0]);
  const target = holder && [...holder.querySelectorAll("a, summary, pre")][focused[1]];
  if (target && target.closest(".cards")) focusOn(target);
  else if (target) target.focus();
}

function live() {
  const content = document.getElementById("content");
  const state = document.getElementById("live");
  if (!content) return;
  let wanted = Number(content.dataset.version), busy = false;
  const say = (text, lost) => { if (state.textContent !== text) state.textContent = text; state.classList.toggle("lost", lost); };
  async function refresh() {
    if (busy || document.hidden || wanted <= Number(content.dataset.version)) return;
    busy = true;
    const began = performance.now();
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("content");
      if (fresh) exchange(content, fresh);
      else if (answer.status === 403) say("not allowed any more: take a new address", true);
      else content.dataset.version = wanted;
    } catch { say("connection lost, trying again", true); }
    // A page that takes the server long is asked for less often.
    setTimeout(() => { busy = false; refresh(); }, Math.min(SLOWEST, 4 * (performance.now() - began)));
  }
  const source = new EventSource("/changes");
  source.addEventListener("open", () => say("live", false));
  source.addEventListener("message", (event) => { wanted = Number(event.data); refresh(); });
  source.addEventListener("error", () => say("connection lost, trying again", true));
  document.addEventListener("visibilitychange", refresh);
  addEventListener("pagehide", () => source.close());
}

addEventListener("DOMContentLoaded", () => {
  themeButton();
  const content = document.getElementById("content");
  if (content) oneStop(content);
  document.addEventListener("keydown", arrowKeys);
  live();
});
