import { by, keep, post } from "./common.js";

by("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = by("token");
  try {
    keep((await post("login", { token: field.value })).page);
    location.assign("/console/");
  } catch (problem) {
    field.value = "";
    by("said").textContent = problem.message;
    field.focus();
  }
});
