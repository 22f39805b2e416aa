// Before anything is drawn, so that no reader is dazzled at night: light or dark, as the reader's system has it.
"use strict";
const dark = matchMedia("(prefers-color-scheme: dark)");
const wear = () => document.documentElement.setAttribute("data-bs-theme", dark.matches ? "dark" : "light");
dark.addEventListener("change", wear);
wear();
