use super::*;
use crate::catalogue;

fn needs(line: &str) -> String {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let command = catalogue::command(args[0]).unwrap();
    let needs = RequestKeys::of(command, &args);
    let name = |at: usize| String::from_utf8_lossy(args[at]).into_owned();
    let letter = |flags| ["?", "r", "w", "rw"][KeyAccess::of(flags) as usize];
    let keys = needs.keys.iter().map(|(at, flags)| name(*at) + ":" + letter(*flags));
    let channels = needs.channel_places(args.len()).map(|at| format!("#{}", name(at)));
    keys.chain(channels).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_key_is_read_or_written() {
    for (line, expected) in [
        ("GET a", "a:r"),
        ("SET a b", "a:w"),
        ("SET a GET", "a:w"),
        ("SET a b NX GET", "a:rw"),
        ("SET a b IFEQ c", "a:rw"),
        ("DELIFEQ a b", "a:rw"),
        ("DELEX a IFEQ b", "a:rw"),
        ("MSETEX 2 a 1 b 2 EX 9", "a:w b:w"),
        ("MSET a 1 b 2", "a:w b:w"),
        ("EXISTS a b", "a:? b:?"),
        ("COPY a b", "a:r b:w"),
        ("RENAME a b", "a:rw b:w"),
        ("BITOP AND a b c", "a:w b:r c:r"),
        ("SORT a BY x* STORE b", "a:r b:w"),
        ("ZUNIONSTORE a 2 b c WEIGHTS 1 2", "a:w b:r c:r"),
        ("ZUNION 2 b c", "b:r c:r"),
        ("SINTERCARD -1 b", ""),
        ("BLMPOP 0 2 a b LEFT", "a:rw b:rw"),
        ("LMPOP 1 a LEFT", "a:rw"),
        ("BITFIELD a GET u4 0 GET u4 4", "a:r"),
        ("BITFIELD a GET u4 0 SET u4 4 1", "a:rw"),
        ("OBJECT ENCODING a", "a:?"),
        ("MIGRATE h 1 a 0 1", "a:rw"),
        ("MIGRATE h 1 a 0 1 KEYS b", "a:rw"),
        ("MIGRATE h 1  0 1 COPY KEYS a b", "a:rw b:rw"),
        ("MIGRATE h 1  0 1 AUTH KEYS KEYS a", "a:rw"),
        ("MIGRATE h 1  0 1 AUTH2 KEYS 1 KEYS a", "a:rw"),
        ("MIGRATE h 1  0 1 KEYS", ""),
        // The key with an empty name.
        ("MIGRATE h 1  0 1", ":rw"),
        ("MIGRATE h 1  0 1 COPY AUTH2 KEYS", ":rw"),
        ("PFCOUNT a b", "a:r b:r"),
        ("PFADD a b", "a:w"),
        ("PFMERGE a b c", "a:rw b:r c:r"),
        ("GEORADIUS a 1 2 3 M STOREDIST b", "a:r b:w"),
        ("GEORADIUS a 1 2 3 M STORE b STORE c", "a:r c:w"),
        ("GEORADIUS a 1 2 3 M STORE", "a:r"),
        ("GEORADIUSBYMEMBER a m 3 M STORE b", "a:r b:w"),
        ("GEOSEARCHSTORE a b FROMMEMBER m BYRADIUS 1 M", "a:w b:r"),
        ("PUBLISH a b", "#a"),
        ("PSUBSCRIBE a b", "#a #b"),
        ("UNSUBSCRIBE a", ""),
        ("PING", ""),
    ] {
        assert_eq!(needs(line), expected, "{line}");
    }
}

/// Key flags of write commands do not begin like the flags of read commands.
#[test]
fn the_flags_of_writing_commands_begin_so() {
    for command in catalogue::all() {
        let Some(first) = command.keys.iter().find(|spec| spec.finds_keys()) else { continue };
        let reads = ["copy", "sort", "watch", "georadius", "georadiusbymember", "xreadgroup"];
        let reads = reads.contains(&command.name);
        assert_eq!(first.flags & RO != 0, reads || !command.writes(), "{}", command.name);
        let kinds = [RO, RW, OW, RM].iter().filter(|kind| first.flags & **kind != 0).count();
        assert_eq!(kinds, 1, "{}", command.name);
    }
}
