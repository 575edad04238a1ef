use super::*;
use crate::storage::hash_index::HashSecret;
use crate::storage::key::KeyBytes;
use crate::storage::record::word;
use crate::storage::row::{Row, apply_delta, encode_delta};
use crate::storage::schema::{Columns, Set};
use crate::storage::table::{Placed, TableData};
use crate::storage::value::Value;
use crate::storage::window::window;
use bumpalo::Bump;
use hyades_index::{Finger, NoHooks};
use proptest::prelude::*;

const KINDS: [Type; 10] = [
    Type::Text,
    Type::I32,
    Type::Bytes,
    Type::U64,
    Type::Fixed(3),
    Type::Bool,
    Type::F64,
    Type::Text,
    Type::Bytes,
    Type::I64,
];

/// The values of a row. The columns of the key, their order, and the nullable columns are drawn.
#[derive(Clone, Debug)]
struct Drawn {
    key: Vec<u16>,
    nullable: u16,
    nulls: u16,
    texts: Vec<String>,
    blobs: Vec<Vec<u8>>,
    numbers: Vec<u64>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let columns: Vec<u16> = (0..KINDS.len() as u16).collect();
    let blob = || prop::collection::vec(prop_oneof![Just(0u8), Just(0xFF), any::<u8>()], 0..80);
    let rows = (
        prop::collection::vec("[a-z\u{0}é]{0,20}", 10),
        prop::collection::vec(blob(), 10),
        prop::collection::vec(any::<u64>(), 10),
    );
    let key = prop::sample::subsequence(columns, 1..=KINDS.len()).prop_shuffle();
    (key, prop_oneof![Just(0), any::<u16>()], any::<u16>(), rows).prop_map(
        |(key, nullable, nulls, (texts, blobs, numbers))| Drawn {
            key,
            nullable,
            nulls,
            texts,
            blobs,
            numbers,
        },
    )
}

impl Drawn {
    fn is_nullable(&self, at: u16) -> bool {
        self.nullable >> at & 1 == 1 && !self.key.contains(&at)
    }

    fn schema(&self) -> Schema {
        let names: Vec<String> = (0..KINDS.len()).map(|at| format!("c{at}")).collect();
        let mut schema = Schema::new("t");
        for (at, name) in names.iter().enumerate() {
            schema = match self.is_nullable(at as u16) {
                true => schema.nullable(name, KINDS[at]),
                false => schema.column(name, KINDS[at]),
            };
        }
        let key: Vec<&str> = self.key.iter().map(|at| &names[usize::from(*at)][..]).collect();
        let schema = schema.primary_key(&key).key_once();
        assert_eq!(schema.fault, None);
        schema
    }

    /// The row's values; with `turn` different values.
    fn values(&self, turn: usize) -> Vec<Value<'_>> {
        let value = |at: usize| {
            let from = (at + turn) % KINDS.len();
            let number = self.numbers[from];
            if self.is_nullable(at as u16) && self.nulls >> from & 1 == 1 {
                return Value::Null;
            }
            match KINDS[at] {
                Type::Bool => Value::Bool(number % 2 == 1),
                Type::I32 => Value::I32(number as i32),
                Type::U32 => Value::U32(number as u32),
                Type::I64 => Value::I64(number as i64),
                Type::U64 => Value::U64(number),
                Type::F64 => Value::F64(number as i64 as f64),
                Type::Fixed(_) => Value::Bytes([&b"abc"[..], b"\0\0\0", b"\xff\0z"][from % 3]),
                Type::Text => Value::Text(&self.texts[from]),
                Type::Bytes => Value::Bytes(&self.blobs[from]),
            }
        };
        (0..KINDS.len()).map(value).collect()
    }

    /// Assignments of the columns of a set that are not of the key.
    fn sets(&self, columns: u16) -> Vec<Set<'_>> {
        let values = self.values(1);
        let may = |at: &u16| columns >> at & 1 == 1 && !self.key.contains(at);
        let columns = (0..KINDS.len() as u16).filter(may);
        columns.map(|column| Set { column, value: values[usize::from(column)] }).collect()
    }
}

fn encoded(layout: &Layout, values: &[Value<'_>]) -> (Vec<u8>, KeyBytes) {
    let (mut row, mut key) = (Vec::new(), KeyBytes::new());
    layout.encode(values, &mut row).unwrap();
    layout.primary_key(values, &mut key);
    (row, key)
}

/// The short row of a key, made whole in place.
fn widened(short: &ShortRows, whole: &Layout, key: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let room = short.room(whole, key);
    let mut buffer = [&vec![0xEE; room][..], bytes].concat();
    let at = short.widen(whole, key, &mut buffer, room)?;
    Some(buffer.split_off(at))
}

proptest! {
    #[test]
    fn a_short_row_and_its_key_are_the_row(drawn in drawn(), changed: u16) {
        let schema = drawn.schema();
        let (whole, short) = (Layout::new(&schema, 0), ShortRows::new(&schema, 0).unwrap());
        let values = drawn.values(0);
        let (mut row, key) = encoded(&whole, &values);
        prop_assert!(is_key(&whole, &key));
        let mut bytes = Vec::new();
        short.shorten(&whole, &row, &mut bytes);
        prop_assert_eq!(bytes.len(), short.short_len(&whole, &row));
        prop_assert!(short.layout.is_valid(&bytes));
        for (at, value) in values.iter().enumerate().filter(|(at, _)| {
            !drawn.key.contains(&(*at as u16))
        }) {
            prop_assert_eq!(&short.layout.value(&bytes, at as u16), value);
        }
        let mut out = vec![7];
        short.append_whole(&whole, &key, &bytes, &mut out);
        prop_assert_eq!(&out[1..], &row[..]);
        if short.keys_lead {
            prop_assert_eq!(widened(&short, &whole, &key, &bytes), Some(row.clone()));
        }
        // The same delta changes both.
        let mut delta = Vec::new();
        encode_delta(&whole, &drawn.sets(changed), &mut delta).unwrap();
        apply_delta(&whole, &mut row, &delta).unwrap();
        apply_delta(&short.layout, &mut bytes, &delta).unwrap();
        let mut expected = Vec::new();
        short.shorten(&whole, &row, &mut expected);
        prop_assert_eq!(bytes, expected);
    }

    /// Bytes that a reader without a lock may copy, and invalid keys.
    #[test]
    fn torn_rows_and_bad_keys_never_panic(
        drawn in drawn(), torn: Vec<u8>, cut: usize, key: Vec<u8>,
    ) {
        let schema = drawn.schema();
        let (whole, short) = (Layout::new(&schema, 0), ShortRows::new(&schema, 0).unwrap());
        let (row, good) = encoded(&whole, &drawn.values(0));
        let mut bytes = Vec::new();
        short.shorten(&whole, &row, &mut bytes);
        let cut = cut % (bytes.len() + 1);
        let mixed: Vec<u8> = torn.iter().chain(bytes.iter().skip(torn.len())).copied().collect();
        for bytes in [&torn[..], &bytes[..cut], &mixed] {
            for key in [&good[..], &key[..], &good[..good.len() - 1]] {
                let mut out = Vec::new();
                short.append_whole(&whole, key, bytes, &mut out);
                prop_assert!(out.is_empty() || out.len() >= whole.fixed_bytes);
                prop_assert!(out.is_empty() || bytes.len() >= short.layout.fixed_bytes);
                if short.keys_lead {
                    let widened = widened(&short, &whole, key, bytes);
                    prop_assert_eq!(widened.is_none(), out.is_empty());
                }
            }
        }
        prop_assert!(!is_key(&whole, &good[..good.len() - 1]));
        prop_assert!(!is_key(&whole, &[&good[..], &[1]].concat()));
    }

    /// Any columns of a row in a record, with and without the whole row being read.
    #[test]
    fn any_columns_read_back_from_a_record(
        drawn in drawn(), sets in prop::collection::vec(any::<u16>(), 1..20), hash: bool,
    ) {
        let schema = if hash { drawn.schema().hash() } else { drawn.schema() };
        let table = TableData::<()>::new(&schema, 0, 0, HashSecret::KNOWN);
        let values = drawn.values(0);
        let (row, key) = encoded(&table.layout, &values);
        let (guard, arena) = (hyades_platform::reclaim::pin(), Bump::new());
        let (room, mut scratch) = (table.bytes_in_record(&row), Vec::new());
        let mut finger = Finger::new(&guard);
        let placed = table.place(&key, room, word::ABSENT, 0, &NoHooks, &mut finger);
        let Placed::New(record, _) = placed else { panic!("the table was empty") };
        table.store_row(record, &row, &guard, &mut scratch);
        prop_assert_eq!(record.row_len(), room);
        for set in sets {
            let set = u64::from(set) & ((1 << KINDS.len()) - 1);
            let columns = Columns(set);
            let part = table.read_part(record, columns, window(&table, columns), &arena);
            let layout = table.layout_read(columns);
            let read = Row {
                layout,
                bytes: part.bytes,
                base: part.base,
                window_nulls: part.nulls,
                row_id: 0,
            };
            for at in (0..KINDS.len()).filter(|at| set >> at & 1 == 1) {
                prop_assert_eq!(&read.value(at as u16), &values[at]);
            }
        }
        let all = table.read_part(record, Columns::ALL, window(&table, Columns::ALL), &arena);
        prop_assert_eq!(all.bytes, &row[..]);
        prop_assert_eq!(table.read_row_into(record, &arena), &row[..]);
        let mut out = vec![7];
        table.read_row(record, &mut out);
        prop_assert_eq!(&out[1..], &row[..]);
        // Changed columns, in place or not.
        let (mut delta, mut row) = (Vec::new(), row);
        let changed = encode_delta(&table.layout, &drawn.sets(u16::MAX), &mut delta).unwrap();
        apply_delta(&table.layout, &mut row, &delta).unwrap();
        table.store_delta(record, changed, &delta, &guard, &mut scratch);
        prop_assert_eq!(table.read_row_into(record, &arena), &row[..]);
    }
}

#[test]
fn a_table_without_a_key_has_whole_rows() {
    let schema = Schema::new("t").column("n", Type::I64).key_once();
    assert!(ShortRows::new(&schema, 0).is_none());
    let table = TableData::<()>::new(&schema, 0, 0, HashSecret::KNOWN);
    assert_eq!((table.record_layout().left_out, table.accepts_key(b"")), (0, true));
}

/// The sizes in docs/performance.md: a row of a key of 16 bytes and a value of as many.
#[test]
fn a_small_row_is_as_small_as_it_is_said_to_be() {
    let schema = Schema::new("keys")
        .column("generation", Type::U64)
        .column("key", Type::Bytes)
        .column("head", Type::U64)
        .column("body", Type::Bytes)
        .primary_key(&["generation", "key"])
        .key_once();
    let layout = Layout::new(&schema, 0);
    let values: [Value<'_>; 4] =
        [0u64.into(), Value::Bytes(&[b'k'; 16]), 0u64.into(), Value::Bytes(&[b'v'; 16])];
    let (row, key) = encoded(&layout, &values);
    assert_eq!((row.len(), key.len()), (56, 26));
    assert_eq!(ShortRows::new(&schema, 0).unwrap().short_len(&layout, &row), 28);
}
