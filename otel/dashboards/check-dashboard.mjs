// Checks a dashboard against the types of @grafana/schema, made into JSON schemas. Run by
// check-dashboard.sh, in the folder that has the packages.
import fs from 'node:fs';
import path from 'node:path';
import Ajv from 'ajv';
import { createGenerator } from 'ts-json-schema-generator';

const types = 'node_modules/@grafana/schema/dist/types/raw';

function schemaOf(file, type) {
  return createGenerator({ path: file, type, skipTypeCheck: true }).createSchema(type);
}

// Grafana fills in what a saved panel leaves out, so nothing is required of its options.
function optional(schema) {
  if (schema && typeof schema === 'object') {
    delete schema.required;
    Object.values(schema).forEach(optional);
  }
  return schema;
}

// The schema of an annotation does not know what the data source of Prometheus adds to it.
const allowed = [/^\/annotations\/list\/\d+ .* (expr|step|titleFormat|textFormat|tagKeys|useValueForTime)$/];

let failed = 0;
let checked = 0;
function check(what, schema, value) {
  checked++;
  const validate = new Ajv({ strict: false, allErrors: true }).compile(schema);
  if (validate(value)) return;
  for (const e of validate.errors) {
    const detail = Object.values(e.params).join(' ');
    if (allowed.some((a) => a.test(`${e.instancePath} ${e.message} ${detail}`))) continue;
    console.error(`${what}: ${e.instancePath} ${e.message} (${detail})`);
    failed++;
  }
}

const dashboard = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
check('dashboard', schemaOf(path.join(types, 'dashboard/x/types.gen.d.ts'), 'Dashboard'), dashboard);
const panels = dashboard.panels.flatMap((p) => [p, ...(p.panels ?? [])]).filter((p) => p.type !== 'row');
for (const type of new Set(panels.map((p) => p.type))) {
  const folder = path.join(types, 'composable', type, 'panelcfg/x');
  if (!fs.existsSync(folder)) {
    console.error(`Grafana has no panel ${type}`);
    failed++;
    continue;
  }
  const file = path.join(folder, fs.readdirSync(folder).find((f) => f.endsWith('.d.ts')));
  const text = fs.readFileSync(file, 'utf8');
  for (const [name, valueOf] of [['Options', (p) => p.options], ['FieldConfig', (p) => p.fieldConfig?.defaults?.custom]]) {
    const own = panels.filter((p) => p.type === type && valueOf(p) !== undefined);
    if (own.length === 0 || !new RegExp(`\\b${name}\\b`).test(text)) continue;
    const schema = optional(schemaOf(file, name));
    for (const p of own) check(`${type} "${p.title}" ${name}`, schema, valueOf(p));
  }
}
console.log(`check-dashboard: ${checked} checks against @grafana/schema, ${failed} failed`);
process.exit(failed ? 1 : 0);
