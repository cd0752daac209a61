// Runs every exported `check_*` of a program and prints a line of JSON for each.
const program = await import(new URL(process.argv[2], import.meta.url));
for (const [name, check] of Object.entries(program)) {
  if (!name.startsWith("check_")) continue;
  let error = null;
  try {
    await check();
  } catch (fault) {
    error = String(fault?.stack ?? fault);
  }
  console.log(JSON.stringify({ check: name, error }));
}
