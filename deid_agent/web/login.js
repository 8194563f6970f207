import { by, post, storePageKey } from "./common.js";

const field = by("token");
const focus = () => field.focus();

by("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const answer = await post("login", { token: field.value });
    storePageKey(answer.page);
    location.assign(answer.reviewer ? "/console/review" : "/console/");
  } catch (problem) {
    field.value = "";
    by("problem").textContent = problem.message;
    focus();
  }
});

// The browser may ignore `autofocus`, for example after a redirect or a click on the page. The focus moves before the
// character is inserted, so it arrives in the field. Keys that operate a link or a button are left to it.
addEventListener("keydown", (event) => {
  const free = !document.activeElement?.closest("a, button, input");
  if (free && event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey) focus();
});
addEventListener("pageshow", focus);
focus();
