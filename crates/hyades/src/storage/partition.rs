//! Partitions of the rows, for a concurrency control that runs the transactions of a partition one
//! after the other: the partitions touched by an access.
//!
//! A value of a partition column has one of [`SLOTS`] slots, whatever the number of partitions, so
//! a set of slots is a word that procedures can state. Nothing on disk depends on partitions: each
//! opening may declare others.

use super::range::Range;
use super::schema::{PartitionSpec, Schema};
use super::value::Value;
use crate::error::Abort;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Partitions are folded from this many slots.
pub(crate) const SLOTS: u32 = 64;

/// A set of partitions, named by values of the partition columns: a transaction's or procedure's
/// statement of the partitions it will access, see [`crate::Transaction::hold`] and
/// [`crate::Builder::on`].
///
/// ```
/// use hyades::Partitions;
/// let (from, to) = (3i64, 7i64);
/// let both = Partitions::of(from).with(to);
/// assert_eq!(both, Partitions::of(to).with(from));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partitions(pub(crate) u64);

impl Partitions {
    /// Every partition: for a transaction that writes replicated tables, or scans all of a
    /// partitioned table and writes. The transaction enters the partitions at its first write.
    pub const ALL: Partitions = Partitions(u64::MAX);

    /// The partition of the rows with the value in the partition column. Integers of any width with
    /// the same value are in the same partition.
    pub fn of<'v>(value: impl Into<Value<'v>>) -> Partitions {
        Partitions(1 << slot_of(&value.into()))
    }

    /// These partitions, and the partition of this value.
    pub fn with<'v>(self, value: impl Into<Value<'v>>) -> Partitions {
        Partitions(self.0 | Partitions::of(value).0)
    }
}

/// Whether two values of a column are the same in keys, and so in slots. Values of -0.0 and 0.0 are
/// equal, but other rows are between the two.
pub(crate) fn is_same_in_keys(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::F64(a), Value::F64(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}

/// The slot of a value, below [`SLOTS`].
#[inline]
pub(crate) fn slot_of(value: &Value<'_>) -> u32 {
    let number = match *value {
        Value::I32(n) => i64::from(n) as u64,
        Value::U32(n) => u64::from(n),
        Value::I64(n) => n as u64,
        Value::U64(n) => n,
        _ => value.with_bytes(fnv),
    };
    (number % u64::from(SLOTS)) as u32
}

/// The members of a set of partitions or slots, ascending.
pub fn members(set: u64) -> impl Iterator<Item = usize> {
    let next = |set: &u64| Some(set & (set - 1)).filter(|rest| *rest != 0);
    std::iter::successors(Some(set).filter(|set| *set != 0), next)
        .map(|set| set.trailing_zeros() as usize)
}

/// FNV-1a, with the upper half folded into the lower half.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
    let hash = bytes.iter().fold(0xCBF2_9CE4_8422_2325, step);
    hash ^ hash >> 32
}

/// The partitions touched by an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchedPartitions {
    /// The partition of the slot.
    One(u32),
    All,
    /// Any partition will do: replicated rows are read, and change only while all partitions are
    /// held.
    Any,
}

impl TouchedPartitions {
    /// Whether a call with these stated slots may access the partitions.
    pub fn check_stated(self, stated: u64) -> Result<(), Abort> {
        let is_stated = match self {
            TouchedPartitions::One(slot) => stated >> slot & 1 == 1,
            TouchedPartitions::All => stated == u64::MAX,
            // The call holds a partition.
            TouchedPartitions::Any => true,
        };
        if is_stated { Ok(()) } else { Err(Abort::OutsidePartitions) }
    }
}

/// How the rows of a table are spread over partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TablePartitions {
    /// All rows are in the partition of the slot.
    Whole(u32),
    /// By the value of a column, and the column's position in the primary key, if any.
    By { column: u16, in_key: Option<u16> },
    /// Rows belong to every partition.
    Replicated,
}

/// How the rows of the declared tables are spread, by names. Calls that were logged before they ran
/// have the same outcome again only if the spread has not changed.
pub(crate) fn declarations(schemas: &[Schema]) -> BTreeMap<String, String> {
    let declaration = |(number, schema): (usize, &Schema)| {
        let spread = match schema.partitions {
            PartitionSpec::Whole => format!("slot {}", number as u32 % SLOTS),
            PartitionSpec::By(column) => format!("by {}", schema.columns[usize::from(column)].name),
            PartitionSpec::Replicated => "replicated".to_string(),
        };
        (schema.name.clone(), spread)
    };
    schemas.iter().enumerate().map(declaration).collect()
}

impl TablePartitions {
    /// How the table with the number is spread. The schema has no fault.
    pub fn new(schema: &Schema, number: u32) -> Self {
        match schema.partitions {
            PartitionSpec::Whole => TablePartitions::Whole(number % SLOTS),
            PartitionSpec::By(column) => {
                let in_key = schema.key.iter().position(|&key| key == column);
                TablePartitions::By { column, in_key: in_key.map(|at| at as u16) }
            }
            PartitionSpec::Replicated => TablePartitions::Replicated,
        }
    }

    /// Returns the partitions touched by an access to one row; `value` returns the row's slot, if
    /// known.
    #[inline]
    fn touched(
        self,
        value: impl FnOnce(u16, Option<u16>) -> Option<u32>,
        writes: bool,
    ) -> TouchedPartitions {
        match self {
            TablePartitions::Whole(slot) => TouchedPartitions::One(slot),
            TablePartitions::By { column, in_key } => {
                value(column, in_key).map_or(TouchedPartitions::All, TouchedPartitions::One)
            }
            TablePartitions::Replicated if writes => TouchedPartitions::All,
            TablePartitions::Replicated => TouchedPartitions::Any,
        }
    }

    /// Returns the partitions touched by an access by primary key or row id.
    #[inline]
    pub fn of_key(self, key: &[Value<'_>], writes: bool) -> TouchedPartitions {
        let value = |_, in_key: Option<u16>| in_key.map(|at| slot_of(&key[usize::from(at)]));
        self.touched(value, writes)
    }

    /// Returns the partitions touched by writing a row.
    #[inline]
    pub fn of_row(self, row: &[Value<'_>]) -> TouchedPartitions {
        self.touched(|column, _| Some(slot_of(&row[usize::from(column)])), true)
    }

    /// Returns the partitions touched by a scan of an index over these columns: one partition if
    /// both bounds begin with the same values up to the partition column, and this column is in the
    /// primary key. Otherwise rows may change their partition, and leave index entries behind; the
    /// entries still lead to the rows.
    pub fn of_range(self, columns: &[u16], range: &Range<'_>) -> TouchedPartitions {
        let fixed = |column, in_key: Option<u16>| {
            in_key?;
            let at = columns.iter().position(|&indexed| indexed == column)?;
            let (Bound::Included(lower) | Bound::Excluded(lower)) = range.lower else {
                return None;
            };
            let (Bound::Included(upper) | Bound::Excluded(upper)) = range.upper else {
                return None;
            };
            let (lower, upper) = (lower.get(..=at)?, upper.get(..=at)?);
            let pairs = || lower.iter().zip(upper);
            pairs().all(|(lower, upper)| is_same_in_keys(lower, upper)).then(|| slot_of(&lower[at]))
        };
        self.touched(fixed, false)
    }

    /// Returns the partitions touched by a search for a unique key of an index over these columns,
    /// beside the partition of the row with the key. All if rows may change their partition, as for
    /// scans.
    pub fn of_unique(self, columns: &[u16]) -> TouchedPartitions {
        match self {
            TablePartitions::By { column, in_key }
                if in_key.is_none() || !columns.contains(&column) =>
            {
                TouchedPartitions::All
            }
            _ => TouchedPartitions::Any,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::value::Type;

    fn schema() -> Schema {
        let schema = Schema::new("stock").column("item", Type::I64).column("shop", Type::I32);
        schema.primary_key(&["shop", "item"]).index("by_item", &["item", "shop"])
    }

    fn bounds<'k>(lower: &'k [Value<'k>], upper: &'k [Value<'k>]) -> Range<'k> {
        let (lower, upper) = (Bound::Included(lower), Bound::Excluded(upper));
        Range { lower, upper, descending: false, limit: 1 }
    }

    #[test]
    fn integers_of_the_same_value_are_in_the_same_partition() {
        let slots = [Value::I32(70), Value::U32(70), Value::I64(70), Value::U64(70)];
        assert!(slots.iter().all(|value| slot_of(value) == 6));
        assert_eq!(slot_of(&Value::I32(-1)), slot_of(&Value::I64(-1)));
        assert_ne!(slot_of(&Value::Text("a")), slot_of(&Value::Text("b")));
    }

    #[test]
    fn a_range_touches_one_partition_only_if_both_bounds_say_which() {
        let table = TablePartitions::new(&schema().partition_by("shop"), 0);
        assert_eq!(table.of_key(&[Value::I32(5), Value::I64(9)], true), TouchedPartitions::One(5));
        assert_eq!(table.of_row(&[Value::I64(9), Value::I32(5)]), TouchedPartitions::One(5));
        let (five, six) = ([Value::I32(5), Value::I64(1)], [Value::I32(6)]);
        let within = [Value::I32(5)];
        assert_eq!(table.of_range(&[1, 0], &bounds(&five, &within)), TouchedPartitions::One(5));
        assert_eq!(table.of_range(&[1, 0], &bounds(&five, &six)), TouchedPartitions::All);
        let unbounded = Range { lower: Bound::Unbounded, ..bounds(&five, &five) };
        assert_eq!(table.of_range(&[1, 0], &unbounded), TouchedPartitions::All);
        // The values before the partition column have to be the same as well.
        let (low, high) = ([Value::I64(1), Value::I32(5)], [Value::I64(2), Value::I32(5)]);
        assert_eq!(table.of_range(&[0, 1], &bounds(&low, &high)), TouchedPartitions::All);
        assert_eq!(table.of_range(&[0, 1], &bounds(&low, &low)), TouchedPartitions::One(5));
        assert_eq!(table.of_range(&[0, 1], &bounds(&low[..1], &low[..1])), TouchedPartitions::All);
    }

    #[test]
    fn replicated_rows_are_read_anywhere_and_written_everywhere() {
        let table = TablePartitions::new(&schema().replicated(), 0);
        let key = [Value::I32(5), Value::I64(9)];
        assert_eq!(table.of_key(&key, false), TouchedPartitions::Any);
        assert_eq!(table.of_key(&key, true), TouchedPartitions::All);
        assert_eq!(table.of_range(&[1, 0], &bounds(&key, &key)), TouchedPartitions::Any);
    }

    #[test]
    fn a_unique_key_without_the_partition_column_touches_all() {
        let table = TablePartitions::new(&schema().partition_by("shop"), 0);
        assert_eq!(table.of_unique(&[0]), TouchedPartitions::All);
        assert_eq!(table.of_unique(&[0, 1]), TouchedPartitions::Any);
        assert_eq!(TablePartitions::new(&schema(), 3).of_unique(&[0]), TouchedPartitions::Any);
    }

    #[test]
    fn a_wrong_partition_column_is_a_fault() {
        let fault = |schema: Schema| schema.fault.unwrap();
        assert!(fault(schema().partition_by("what")).contains("no column"));
        assert!(fault(schema().replicated().partition_by("shop")).contains("replicated"));
        let keyless = Schema::new("notes").nullable("shop", Type::I32).column("n", Type::I64);
        assert!(fault(keyless.clone().partition_by("shop")).contains("nullable"));
        let keyed = schema().column("n", Type::I64).primary_key(&["n"]);
        assert!(fault(keyed.partition_by("shop")).contains("primary key"));
        // Whichever comes first.
        let before = keyless.clone().partition_by("n").column("key", Type::I64);
        assert_eq!(before.fault, None);
        assert!(fault(before.clone().primary_key(&["key"])).contains("primary key"));
        assert_eq!(before.primary_key(&["key", "n"]).fault, None);
        let twice = schema().partition_by("shop").partition_by("item");
        assert!(fault(twice).contains("twice"));
    }

    /// Rows without a primary key may change their partition: an old index entry leads to a row in
    /// another partition.
    #[test]
    fn indexes_over_rows_that_may_move_touch_all() {
        let notes = Schema::new("notes").column("shop", Type::I32).unique("by_shop", &["shop"]);
        let table = TablePartitions::new(&notes.partition_by("shop"), 0);
        let five = [Value::I32(5)];
        assert_eq!(table.of_range(&[0], &bounds(&five, &five)), TouchedPartitions::All);
        assert_eq!(table.of_unique(&[0]), TouchedPartitions::All);
        assert_eq!(table.of_row(&five), TouchedPartitions::One(5));
    }

    /// Zeros of both signs are equal, and two keys: rows of both are in a range between the zeros.
    #[test]
    fn a_range_between_zeros_touches_all() {
        let schema = Schema::new("points").column("x", Type::F64).column("n", Type::I64);
        let schema = schema.primary_key(&["x", "n"]);
        let by_x = TablePartitions::new(&schema.clone().partition_by("x"), 0);
        let (minus, plus) = ([Value::F64(-0.0)], [Value::F64(0.0)]);
        assert_eq!(by_x.of_range(&[0, 1], &bounds(&minus, &plus)), TouchedPartitions::All);
        let slot = TouchedPartitions::One(slot_of(&Value::F64(0.0)));
        assert_eq!(by_x.of_range(&[0, 1], &bounds(&plus, &plus)), slot);
        // The same if the column comes before the partition column.
        let by_n = TablePartitions::new(&schema.partition_by("n"), 0);
        let (low, high) = ([minus[0], Value::I64(3)], [plus[0], Value::I64(3)]);
        assert_eq!(by_n.of_range(&[0, 1], &bounds(&low, &high)), TouchedPartitions::All);
        assert_eq!(by_n.of_range(&[0, 1], &bounds(&low, &low)), TouchedPartitions::One(3));
    }
}
