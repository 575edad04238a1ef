use super::*;

fn facts(name: &str) -> CommandFacts {
    match (catalogue::command(name.as_bytes()), catalogue::subcommand(name.as_bytes())) {
        (Some(command), _) => CommandFacts::of(command),
        (None, Some(subcommand)) => {
            CommandFacts::of_subcommand(subcommand, pages::find(name.as_bytes()).unwrap())
        }
        (None, None) => panic!("{name} is not built"),
    }
}

fn told(name: &str) -> String {
    let facts = facts(name);
    let (first, last, step) = facts.keys;
    let specs: Vec<String> = facts.specs.iter().map(key_specs::shown).collect();
    let (flags, specs) = (facts.flags.join(" "), specs.join(", "));
    format!("{} {flags} | {first} {last} {step} | {specs}", facts.arity).trim_end().to_string()
}

/// The replies of Redis 7.0.15, unless noted.
#[test]
fn arity_flags_and_keys_are_those_of_redis() {
    for (name, expected) in [
        ("get", "2 readonly fast | 1 1 1 | RO+access @1 ..0/1"),
        ("set", "-3 write denyoom | 1 1 1 | RW+access+update+variable_flags @1 ..0/1"),
        ("del", "-2 write | 1 -1 1 | RM+delete @1 ..-1/1"),
        ("mset", "-3 write denyoom | 1 -1 2 | OW+update @1 ..-1/2"),
        ("append", "3 write denyoom fast | 1 1 1 | RW+insert @1 ..0/1"),
        ("bitop", "-4 write denyoom | 2 -1 1 | OW+update @2 ..0/1, RO+access @3 ..-1/1"),
        ("blpop", "-3 write noscript blocking | 1 -2 1 | RW+access+delete @1 ..-2/1"),
        ("bzpopmin", "-3 write noscript blocking fast | 1 -2 1 | RW+access+delete @1 ..-2/1"),
        ("lmove", "5 write denyoom | 1 2 1 | RW+access+delete @1 ..0/1, RW+insert @2 ..0/1"),
        ("lcs", "-3 readonly | 1 2 1 | RO+access @1 ..1/1"),
        ("rename", "3 write | 1 2 1 | RW+access+delete @1 ..0/1, OW+update @2 ..0/1"),
        ("copy", "-3 write denyoom | 1 2 1 | RO+access @1 ..0/1, OW+update @2 ..0/1"),
        ("lmpop", "-4 write movablekeys | 0 0 0 | RW+access+delete @1 #"),
        (
            "zunionstore",
            "-4 write denyoom movablekeys | 1 1 1 | OW+update @1 ..0/1, RO+access @2 #",
        ),
        (
            "sort",
            "-2 write denyoom movablekeys | 1 1 1 | RO+access @1 ..0/1, RO+access ? ?, \
             OW+update ? ?",
        ),
        ("sort_ro", "-2 readonly movablekeys | 1 1 1 | RO+access @1 ..0/1, RO+access ? ?"),
        (
            "migrate",
            "-6 write movablekeys | 3 3 1 | RW+access+delete @3 ..0/1, \
             RW+access+delete+incomplete KEYS@-2 ..-1/1",
        ),
        ("move", "3 write fast | 1 1 1 | RW+access+update @1 ..0/1"),
        ("auth", "-2 noscript loading stale fast no_auth allow_busy | 0 0 0 |"),
        ("exec", "1 noscript loading stale skip_slowlog | 0 0 0 |"),
        ("shutdown", "-1 admin noscript loading stale no_multi allow_busy | 0 0 0 |"),
        ("save", "1 admin noscript no_async_loading no_multi | 0 0 0 |"),
        ("subscribe", "-2 pubsub noscript loading stale | 0 0 0 |"),
        ("ssubscribe", "-2 pubsub noscript loading stale | 1 -1 1 | not_key @1 ..-1/1"),
        ("spublish", "3 pubsub loading stale fast | 1 1 1 | not_key @1 ..0/1"),
        ("restore-asking", "-4 write denyoom asking | 1 1 1 | OW+update @1 ..0/1"),
        ("config", "-2  | 0 0 0 |"),
        ("config|get", "-3 admin noscript loading stale | 0 0 0 |"),
        ("config|set", "-4 admin noscript loading stale | 0 0 0 |"),
        ("config|help", "2 loading stale | 0 0 0 |"),
        ("acl|cat", "-2 noscript loading stale | 0 0 0 |"),
        ("client|list", "-2 admin noscript loading stale | 0 0 0 |"),
        ("command", "-1 loading stale | 0 0 0 |"),
        ("slowlog|get", "-2 admin loading stale | 0 0 0 |"),
        ("pubsub|numsub", "-2 pubsub loading stale | 0 0 0 |"),
        ("memory", "-2  | 0 0 0 |"),
        ("memory|usage", "-3 readonly | 2 2 1 | RO @2 ..0/1"),
        ("object|encoding", "3 readonly | 2 2 1 | RO @2 ..0/1"),
        ("latency|reset", "-2 admin noscript loading stale | 0 0 0 |"),
        // Redis replies `loading` and `stale` here, or does not: the expected flags are the true
        // flags.
        ("watch", "-2 noscript fast allow_busy | 1 -1 1 | RO @1 ..-1/1"),
        ("ping", "-1 loading stale fast | 0 0 0 |"),
        // Of Redis 7.2.
        ("client|setinfo", "4 noscript loading stale | 0 0 0 |"),
        ("waitaof", "4 noscript loading stale | 0 0 0 |"),
    ] {
        assert_eq!(told(name), expected, "{name}");
    }
}

/// The first three numbers alone lead to the same keys as the specifications.
#[test]
fn the_first_key_is_that_of_the_first_specification() {
    for command in catalogue::all() {
        let facts = facts(command.name);
        let first = facts.specs.first().map(key_specs::shown).unwrap_or_default();
        // Keys of other commands are found behind a number or a word alone.
        let is_counted = first.ends_with('#') || first.ends_with(":2");
        let (key, _, _) = facts.keys;
        match key {
            0 => assert!(first.is_empty() || is_counted, "{}: {first}", command.name),
            _ => assert!(first.contains(&format!(" @{key} ..")), "{}: {first}", command.name),
        }
    }
}

#[test]
fn every_subcommand_is_told_by_its_whole_name() {
    let told = |name: &str, resp3| {
        let mut bytes = Vec::new();
        write_named(name.as_bytes(), &mut Reply::new(&mut bytes, resp3));
        String::from_utf8(bytes).unwrap().replace("\r\n", " ")
    };
    assert_eq!(
        told("CONFIG|Get", false),
        "*10 $10 config|get :-3 *4 +admin +noscript +loading +stale :0 :0 :0 *3 +@admin +@slow \
         +@dangerous *0 *0 *0 "
    );
    assert_eq!(
        told("slowlog|len", true),
        "*10 $11 slowlog|len :2 ~3 +admin +loading +stale :0 :0 :0 ~3 +@admin +@slow +@dangerous \
         ~0 ~0 ~0 "
    );
    // The reply includes the subcommands.
    let config = told("config", false);
    assert!(
        config.starts_with("*10 $6 config :-2 *0 :0 :0 :0 *1 +@slow *0 *0 *5 *10 "),
        "{config}"
    );
    assert!(config.contains(&told("config|get", false)), "{config}");
    for name in ["get|key", "config|none", "config|get|key", "|", "config|", ""] {
        assert_eq!(told(name, false), "*-1 ", "{name}");
        assert_eq!(told(name, true), "_ ", "{name}");
    }
}
