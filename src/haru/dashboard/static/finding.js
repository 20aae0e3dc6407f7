// Finding without a mouse: arrow keys go through the rows of tables, ? shows all keys, views are saved in this browser.
"use strict";

const VIEWS = "haru-views", MOST_VIEWS = 50;

// -- rows

function rowLinks() { return [...document.querySelectorAll("#content tbody tr")].map((row) => row.querySelector("a")).filter(Boolean); }
function moveInRows(event) {
  if (!["ArrowDown", "ArrowUp"].includes(event.key) || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const row = event.target.closest && event.target.closest("#content tbody tr");
  const fromBox = event.target.matches && event.target.matches("input[type=search]");
  if (!row && !fromBox) return;
  const links = rowLinks(), at = row ? links.indexOf(row.querySelector("a")) : -1;
  const next = links[at + (event.key === "ArrowDown" ? 1 : -1)];
  if (next) next.focus();
  else if (event.key === "ArrowUp" && at === 0) document.getElementById("search")?.focus();
  event.preventDefault();
}

// -- keys

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
function helpDialog() {
  const dialog = element("dialog", "", { id: "keys", "aria-label": "Keys" });
  const list = element("dl");
  const told = [["/", "search everything"], ["↑ ↓", "go through the rows of a table, or from the search to them"], ["← → ↑ ↓", "go through the cells of the map"], ["Enter", "open what has the focus"], ["Esc", "leave a field, close this"]];
  document.querySelectorAll("[data-go]").forEach((link) => { if (link.dataset.go) told.push([`g ${link.dataset.go}`, link.textContent.trim()]); });
  told.push(["?", "show these keys"]);
  for (const [key, text] of told) { const term = element("dt"); term.append(element("kbd", key)); list.append(term, element("dd", text)); }
  const form = element("form", "", { method: "dialog" });
  form.append(element("button", "Close"));
  dialog.append(element("h2", "Keys"), list, form);
  document.body.append(dialog);
  return dialog;
}
function helped(event) {
  if (event.key !== "?" || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.target.matches && event.target.matches("input, textarea, select")) return;
  const dialog = document.getElementById("keys") || helpDialog();
  if (!dialog.open) dialog.showModal();
  event.preventDefault();
}

// -- saved views: an address with its filters, under a name

function savedViews() {
  try {
    const found = JSON.parse(localStorage.getItem(VIEWS) || "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each.name === "string" && /^\/(?![/\\])/.test(each.href)) : [];
  } catch { return []; }
}
function saveViews(views) { try { localStorage.setItem(VIEWS, JSON.stringify(views.slice(-MOST_VIEWS))); } catch { /* they last as long as the page */ } }
function viewMenu() {
  const bar = document.querySelector(".bar nav");
  if (!bar) return;
  const menu = element("details", "", { class: "views" });
  const body = element("div", "", { class: "menu" });
  menu.append(element("summary", "Views"), body);
  bar.after(menu);
  const show = () => {
    const list = element("ul"), views = savedViews();
    views.forEach((each, index) => {
      const item = element("li"), drop = element("button", "Remove", { type: "button", class: "quiet", "aria-label": `Remove the view ${each.name}` });
      drop.addEventListener("click", () => { saveViews(views.filter((_, other) => other !== index)); show(); });
      item.append(element("a", each.name, { href: each.href }), drop);
      list.append(item);
    });
    const form = element("form"), name = element("input", "", { name: "view", "aria-label": "Name of this view", placeholder: "Name of this view", required: "", maxlength: "60", autocomplete: "off" });
    form.append(name, element("button", "Save", { type: "submit" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const title = name.value.trim();
      if (!title) return;
      saveViews([...savedViews().filter((each) => each.name !== title), { name: title, href: location.pathname + location.search }]);
      show();
    });
    body.replaceChildren(views.length ? list : element("p", "None is saved in this browser.", { class: "hint" }), form);
  };
  menu.addEventListener("toggle", () => { if (menu.open) show(); });
  document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
}

addEventListener("DOMContentLoaded", () => {
  document.addEventListener("keydown", moveInRows);
  document.addEventListener("keydown", helped);
  viewMenu();
});
