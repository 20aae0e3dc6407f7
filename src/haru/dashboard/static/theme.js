// The theme, before anything is painted.
"use strict";
const THEMES = ["system", "light", "dark"];
function theme() {
  try { return localStorage.getItem("haru-theme") || "system"; } catch { return "system"; }
}
function applyTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}
applyTheme(theme());
