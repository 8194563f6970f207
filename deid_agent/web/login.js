import { by, post } from "./common.js";

by("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = by("token");
  try {
    await post("login", { token: field.value });
    location.assign("/console/");
  } catch (problem) {
    field.value = "";
    by("said").textContent = problem.message;
    field.focus();
  }
});
