// Runs before the first paint: the colours that were chosen, if they are not the system's.
try {
  const theme = JSON.parse(localStorage.getItem("baton.preferences") ?? "{}").theme;
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Nothing is kept: the system's.
}
