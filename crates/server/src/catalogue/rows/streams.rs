//! Rows of the commands for streams. The columns are the fields of `Row`.

macro_rules! streams_rows {
    ($with:ident) => { $with! { "stream";
    "xack", -4, Data(stream_groups::xack), WRITE | FAST, [first(RW | UPDATE)],
        "stream", Event::Told,
        "5.0.0", "O(N) with N the ids", "Acknowledges entries that a group has delivered",
        "key group id [id ..]";
    "xadd", -5, Data(streams::xadd), GROW | FAST, [first(RW | UPDATE)], "stream", Event::Told,
        "5.0.0", "O(1), or O(N) with N the entries that are trimmed",
        "Adds an entry to a stream; creates it if there is none",
        "key [NOMKSTREAM] trim:[strategy:(MAXLEN|MINID) operator:[equal:=|approximately:~] \
         threshold [LIMIT count]] id_or_auto:(auto_id:*|id) field_value:(field value ..)";
    "xautoclaim", -6, Data(stream_claims::xautoclaim), WRITE | FAST, [first(RW | DELETE)],
        "stream", Event::Told,
        "6.2.0", "O(N) with N the entries claimed",
        "Gives entries that have been pending for long to a consumer",
        "key group consumer min-idle-time start:string [COUNT count] [JUSTID]";
    "xclaim", -6, Data(stream_claims::xclaim), WRITE | FAST, [first(RW | UPDATE)],
        "stream", Event::Told,
        "5.0.0", "O(N*log(M)) with N the ids and M the entries pending",
        "Gives pending entries to a consumer",
        "key group consumer min-idle-time id [id ..] [IDLE ms:integer] \
         [TIME unix-time-milliseconds] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID id]";
    "xdel", -3, Data(streams::xdel), WRITE | FAST, [first(RW | DELETE)], "stream", Event::Told,
        "5.0.0", "O(N) with N the ids", "Removes entries from a stream",
        "key id [id ..]";
    "xgroup", -2, Data(stream_groups::xgroup), WRITE,
        [at(2, RW | UPDATE).with_flags(DEPENDS, finders::group_flags)], "", Event::Told,
        "5.0.0", "-", "Manages groups of consumers",
        "";
    "xinfo", -2, Data(stream_info::xinfo), READ, [at(2, RO | ACCESS)], "", Event::None,
        "5.0.0", "-", "Tells of streams, groups and consumers",
        "";
    "xlen", 2, Data(streams::xlen), READ | FAST, [first(RO)], "stream", Event::None,
        "5.0.0", "O(1)", "Returns the number of entries of a stream",
        "key";
    "xpending", -3, Data(stream_groups::xpending), READ, [first(RO | ACCESS)],
        "stream", Event::None,
        "5.0.0", "O(N) with N the entries passed",
        "Lists entries that were delivered and not acknowledged",
        "key group filters:[[IDLE min-idle-time:integer] start:string end:string count [consumer]]";
    "xrange", -4, Data(streams::xrange), READ, [first(RO | ACCESS)], "stream", Event::None,
        "5.0.0", "O(N) with N the entries returned", "Returns the entries in a range of ids",
        "key start:string end:string [COUNT count]";
    "xread", -4, Data(stream_reads::xread), READ | BLOCKS,
        [behind_half("STREAMS", 1, RO | ACCESS).found_by(finders::stream_keys)],
        "stream", Event::None,
        "5.0.0", "O(N) with N the entries returned",
        "Returns the entries behind ids, or waits for some",
        "[COUNT count] [BLOCK milliseconds] streams:(STREAMS key [key ..] id [id ..])";
    "xreadgroup", -7, Data(stream_reads::xreadgroup), WRITE | BLOCKS,
        [behind_half("STREAMS", 4, RO | ACCESS).found_by(finders::stream_keys)],
        "stream", Event::Told,
        "5.0.0", "O(N) with N the entries returned",
        "Delivers entries to a consumer of a group, or waits for some",
        "group_consumer:(GROUP group consumer) [COUNT count] [BLOCK milliseconds] [NOACK] \
         streams:(STREAMS key [key ..] id [id ..])";
    "xrevrange", -4, Data(streams::xrevrange), READ, [first(RO | ACCESS)], "stream", Event::None,
        "5.0.0", "O(N) with N the entries returned",
        "Returns the entries in a range of ids, last first",
        "key end:string start:string [COUNT count]";
    "xsetid", -3, Data(streams::xsetid), GROW | FAST, [first(RW | UPDATE)], "stream", Event::Told,
        "5.0.0", "O(1)", "Sets the last id of a stream",
        "key last-id [ENTRIESADDED entries_added:integer] [MAXDELETEDID max_deleted_entry_id]";
    "xtrim", -4, Data(streams::xtrim), WRITE, [first(RW | DELETE)], "stream", Event::Told,
        "5.0.0", "O(N) with N the entries removed", "Removes the first entries of a stream",
        "key trim:(strategy:(MAXLEN|MINID) operator:[equal:=|approximately:~] threshold \
         [LIMIT count])";
    } };
}
pub(crate) use streams_rows;
