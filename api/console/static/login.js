document.getElementById("zone").value = Intl.DateTimeFormat().resolvedOptions().timeZone;

// A link may bring the token where the console and the browser are on one machine: the demonstration's.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  history.replaceState(null, "", location.pathname + location.search);
  if (document.body.dataset.links !== "yes") return;
  document.getElementById("token").value = given;
  document.forms[0].submit();
}

addEventListener("hashchange", takeToken);
takeToken();
