//! Rows of the commands for strings as arrays of bits. The columns are the fields of `Row`.

macro_rules! bitmaps_rows {
    ($with:ident) => { $with! { "bitmap";
    "bitcount", -2, Data(bits::bitcount), READ, [first(RO | ACCESS)], "bitmap", Event::None,
        "2.6.0", "O(N)", "Counts the bits of a string that are set",
        "key [index:[start end [index_unit:[BYTE|BIT]]]]";
    "bitfield", -2, Data(bitfield::bitfield), GROW,
        [first(RW | ACCESS | UPDATE | VARIABLE).with_flags(DEPENDS, finders::bitfield_flags)],
        "bitmap", Event::Named("setbit"),
        "3.2.0", "O(1) for each operation", "Reads and changes integers of any width in a string",
        "key [operation:(GET encoding offset|write:([OVERFLOW (WRAP|SAT|FAIL)] \
         write_operation:(SET encoding offset value:integer|INCRBY encoding offset increment))) \
         ..]";
    "bitfield_ro", -2, Data(bitfield::bitfield_ro), READ | FAST, [first(RO | ACCESS)],
        "bitmap", Event::None,
        "6.0.0", "O(1) for each operation", "Reads integers of any width from a string",
        "key [GET encoding offset [GET encoding offset ..]]";
    "bitop", -4, Data(bits::bitop), GROW, [at(2, OW | UPDATE), all_from(3, RO | ACCESS)],
        "bitmap", Event::Set,
        "2.6.0", "O(N)", "Combines the bits of strings and stores the result",
        "operation destkey key [key ..]";
    "bitpos", -3, Data(bits::bitpos), READ, [first(RO | ACCESS)], "bitmap", Event::None,
        "2.8.7", "O(N)", "Finds the first bit that is set, or not set, in a string",
        "key bit [index:[start [end_index:[end [index_unit:[BYTE|BIT]]]]]]";
    "getbit", 3, Data(numbers::getbit), READ | FAST, [first(RO | ACCESS)], "bitmap", Event::None,
        "2.2.0", "O(1)", "Returns a bit of a string",
        "key offset";
    "setbit", 4, Data(numbers::setbit), GROW, [first(RW | ACCESS | UPDATE)],
        "bitmap", Event::Named("setbit"),
        "2.2.0", "O(1)", "Sets or clears a bit of a string, and returns what it was",
        "key offset value:integer";
    } };
}
pub(crate) use bitmaps_rows;
