//! Writes keys and their values as a file.

use std::fmt::Write as _;

use toml::{Table, Value};

use crate::{Schema, ValueType};

/// A table as TOML, in schema order. The schema's own tables become sections, unless they are empty; others stay inline.
pub fn write(schema: &Schema, table: &Table) -> String {
    let mut out = String::new();
    section(&mut out, schema, table);
    for key in schema.keys {
        match (key.value, table.get(key.name)) {
            (ValueType::Table(inner), Some(Value::Table(below))) if !key.optional && !below.is_empty() => {
                let _ = writeln!(out, "\n[{}]", key.name);
                section(&mut out, inner, below);
            }
            (ValueType::Raw, Some(Value::Table(below))) => {
                let _ = writeln!(out, "\n[{}]", key.name);
                raw(&mut out, below);
            }
            (ValueType::Raw, Some(Value::Array(items))) => {
                for item in items {
                    let _ = writeln!(out, "\n[[{}]]", key.name);
                    item.as_table().into_iter().for_each(|below| raw(&mut out, below));
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

/// A table whose keys are not known here: its name first.
fn raw(out: &mut String, table: &Table) {
    let (name, others): (Vec<_>, Vec<_>) = table.iter().partition(|(key, _)| *key == "name");
    name.into_iter().chain(others).for_each(|(key, value)| line(out, key, value));
}

fn line(out: &mut String, key: &str, value: &Value) {
    let _ = writeln!(out, "{} = {}", bare(key), inline(value));
}

/// A value on one line, with tiny and huge numbers as people write them: 1e-5.
pub fn inline(value: &Value) -> String {
    match value {
        Value::Float(number) if number.is_finite() && *number != 0.0 && !(1e-4..1e16).contains(&number.abs()) => {
            format!("{number:e}")
        }
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Table(table) => {
            let pairs = table.iter().map(|(key, value)| format!("{} = {}", bare(key), inline(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {
            value.to_string()
        }
    }
}

/// A key, in quotes if it needs them.
fn bare(key: &str) -> String {
    let is_bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if is_bare { key.to_string() } else { Value::String(key.to_string()).to_string() }
}
