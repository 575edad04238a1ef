//! Entry points for tests that feed arbitrary bytes to the decoders. Not part of the public API.

use crate::logging::record::{TableShape, take_change};
use crate::recovery::catalogue::{Catalogue, entries};
use crate::storage::key::KeyBytes;
use crate::storage::layout::Layout;
use crate::storage::row::{apply_delta, check_delta};
use crate::storage::schema::Schema;
use crate::storage::value::Type;
use crate::transaction::procedure::decode_result;

/// Decodes bytes as a catalogue, and joins the catalogue with its own declarations.
pub fn catalogue(bytes: &[u8]) {
    let Ok((tables, procedures)) = entries(bytes) else { return };
    let schemas: Vec<Schema> = tables.into_iter().map(|(_, schema)| schema).collect();
    for schema in &schemas {
        let layout = Layout::new(schema, 0);
        let _ = layout.is_valid(bytes);
    }
    if let Ok(catalogue) = Catalogue::join(bytes, &schemas, &[], &[], None) {
        for (id, ..) in procedures {
            let _ = catalogue.procedure(u64::from(id));
        }
        assert!(entries(&catalogue.to_bytes()).is_ok(), "a catalogue reads back");
    }
    // With no declarations, and with an additional declaration.
    let _ = Catalogue::join(bytes, &[], &[], &[], None);
    let more = [&schemas[..], &[Schema::new("one more")]].concat();
    let _ = Catalogue::join(bytes, &more, &[], &[], None);
    // With all tables dropped, and with all changed.
    let names: Vec<String> = schemas.iter().map(|schema| schema.name.clone()).collect();
    let _ = Catalogue::join(bytes, &[], &[], &names, None);
    let change = |schema: Schema| schema.nullable("one more", Type::I32);
    let changed: Vec<Schema> = schemas.into_iter().map(change).collect();
    if changed.iter().all(|schema| schema.fault.is_none()) {
        let _ = Catalogue::join(bytes, &changed, &[], &[], None);
    }
}

/// Decodes bytes as a row of the table, as a delta on it, and as row changes of a record.
pub fn row(schema: &Schema, bytes: &[u8]) {
    let layout = Layout::new(schema, 0);
    let shape = || TableShape { layout: &layout, keyless: schema.key.is_empty(), key_bytes: None };
    let mut rest = bytes;
    while take_change(&mut rest, |_| Some(shape())).is_some() {}
    let _ = decode_result::<(u64, String, Vec<Option<i32>>)>(bytes);
    let Some((&[low, high], rest)) = bytes.split_first_chunk() else { return };
    let at = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
    let (row, delta) = rest.split_at(at);
    let _ = check_delta(&layout, delta);
    if !layout.is_valid(row) {
        return;
    }
    (0..layout.columns.len() as u16).for_each(|at| drop(format!("{:?}", layout.value(row, at))));
    layout.primary_key_of(row, &mut KeyBytes::new());
    if check_delta(&layout, delta).is_some() {
        let mut row = row.to_vec();
        if apply_delta(&layout, &mut row, delta).is_ok() {
            assert!(layout.is_valid(&row), "a row stays one");
        }
    }
}
