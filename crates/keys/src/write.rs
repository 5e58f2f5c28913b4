//! Writes keys and their values as a file.

use std::fmt::Write as _;

use toml::{Table, Value};

use crate::{Schema, ValueType};

/// A table as TOML, in schema order. The schema's own tables become sections; others stay inline.
pub fn write(schema: &Schema, table: &Table) -> String {
    let mut out = String::new();
    section(&mut out, schema, table);
    for key in schema.keys {
        match (key.value, table.get(key.name)) {
            (ValueType::Table(inner), Some(Value::Table(below))) if !key.optional => {
                let _ = writeln!(out, "\n[{}]", key.name);
                section(&mut out, inner, below);
            }
            (ValueType::Raw, Some(Value::Table(below))) => {
                let _ = writeln!(out, "\n[{}]\n{}", key.name, below.to_string().trim_end());
            }
            (ValueType::Raw, Some(Value::Array(items))) => {
                for item in items {
                    let _ = writeln!(out, "\n[[{}]]", key.name);
                    item.as_table().into_iter().flatten().for_each(|(key, value)| line(&mut out, key, value));
                }
            }
            _ => {}
        }
    }
    out
}

fn section(out: &mut String, schema: &Schema, table: &Table) {
    for name in schema.names() {
        let is_section = schema.key(name).is_some_and(|key| match key.value {
            ValueType::Table(_) => !key.optional,
            ValueType::Raw => true,
            _ => false,
        });
        if let Some(value) = table.get(name).filter(|_| !is_section) {
            line(out, name, value);
        }
    }
}

fn line(out: &mut String, key: &str, value: &Value) {
    let _ = writeln!(out, "{key} = {value}");
}
