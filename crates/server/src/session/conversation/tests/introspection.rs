//! Replies about clients, commands, and settings.

use super::*;

#[test]
fn a_client_is_shown_with_the_command_that_runs() {
    let mut house = House::new(false);
    let (mut client, mut waiting) = (house.client(), house.client());
    // 26 bytes.
    let shown = house.say(&mut client, b"*2\r\n$6\r\nclient\r\n$4\r\nlist\r\n");
    assert!(shown.contains(" qbuf=26 ") && shown.contains(" cmd=client|list "), "{shown}");
    let shown = house.say(&mut client, b"*2\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n");
    assert!(shown.contains(" qbuf=26 ") && shown.contains(" cmd=client|info "), "{shown}");
    let id = waiting.client.entry.id;
    let of_waiting = format!("CLIENT LIST ID {id}\r\n").into_bytes();
    for (sent, expected) in
        [(&b"GET a\r\n"[..], " flags=N "), (b"BLPOP l 0\r\n", " flags=b "), (b"", " flags=b ")]
    {
        house.say(&mut waiting, sent);
        let name = if expected == " flags=N " { " cmd=get " } else { " cmd=blpop " };
        let shown = house.say(&mut client, &of_waiting);
        assert!(shown.contains(expected) && shown.contains(name), "{shown}");
    }
    // There is no such subcommand: it is refused, and the last command stays.
    house.say(&mut client, b"CLIENT NONE\r\n");
    let id = client.client.entry.id;
    assert!(client.client.entry.line(0).contains("cmd=client|list "), "{id}");
}

/// However often an option is given, the clients are looked through once.
#[test]
fn of_each_option_of_client_kill_the_last_one_counts() {
    let mut house = House::new(false);
    let (mut client, one, two) = (house.client(), house.client(), house.client());
    let (first, second) = (one.client.entry.id, two.client.entry.id);
    let line = format!("CLIENT KILL ID {first} ADDR none ADDR 127.0.0.1:1 ID {second}\r\n");
    assert_eq!(house.say(&mut client, line.as_bytes()), ":1 ");
    let is_killed = |conversation: &Conversation| {
        conversation.client.entry.is_killed.load(std::sync::atomic::Ordering::Relaxed)
    };
    assert!(!is_killed(&one) && is_killed(&two));
}

/// A client is as old as the seconds since it connected.
#[test]
fn clients_are_killed_by_their_age() {
    let mut house = House::new(false);
    // Ahead of the wall clock the server's clock stands still.
    let now = house.shared.clock.now_ms() + 1_000_000;
    house.shared.clock.advance(now);
    let (mut client, old) = (house.client_since(now), house.client_since(now - 10_000));
    let young = house.client_since(now - 9_999);
    for (line, expected) in [
        ("CLIENT KILL MAXAGE x", "-ERR maxage is not an integer or out of range"),
        ("CLIENT KILL MAXAGE 0", "-ERR maxage should be greater than 0"),
        ("CLIENT KILL MAXAGE 11", ":0"),
        ("CLIENT KILL MAXAGE 9223372036854775807", ":0"),
        ("CLIENT KILL MAXAGE 10", ":1"),
    ] {
        let said = house.say(&mut client, format!("{line}\r\n").as_bytes());
        assert_eq!(said.trim_end(), expected, "{line}");
    }
    let is_killed = |conversation: &Conversation| {
        conversation.client.entry.is_killed.load(std::sync::atomic::Ordering::Relaxed)
    };
    assert!(is_killed(&old) && !is_killed(&young));
}

#[test]
fn a_setting_is_set_once_by_a_command() {
    let mut house = House::new(false);
    let mut client = house.client();
    assert_eq!(
        house.say(&mut client, b"CONFIG SET maxmemory 1mb timeout 5 MAXMEMORY 2mb\r\n"),
        "-ERR CONFIG SET failed (possibly related to argument 'MAXMEMORY') - duplicate parameter "
    );
    let shown = house.say(&mut client, b"CONFIG GET maxmemory timeout\r\n");
    assert_eq!(shown, "*4 $9 maxmemory $1 0 $7 timeout $1 0 ");
    assert_eq!(house.say(&mut client, b"CONFIG SET maxmemory 1mb timeout 5\r\n"), "+OK ");
}

#[test]
fn flags_tell_what_a_command_does() {
    let mut house = House::new(false);
    let mut client = house.client();
    for (name, flags) in [
        ("get", "*2 +readonly +fast "),
        ("zunionstore", "*3 +write +denyoom +movablekeys "),
        ("sintercard", "*2 +readonly +movablekeys "),
        ("sort", "*3 +write +denyoom +movablekeys "),
        ("sort_ro", "*2 +readonly +movablekeys "),
        ("blmpop", "*3 +write +blocking +movablekeys "),
        ("bzpopmin", "*4 +write +noscript +blocking +fast "),
        ("subscribe", "*4 +pubsub +noscript +loading +stale "),
    ] {
        let info = house.say(&mut client, format!("COMMAND INFO {name}\r\n").as_bytes());
        assert!(info.contains(flags), "{name}: {info}");
    }
    assert_eq!(house.say(&mut client, b"COMMAND INFO get|key\r\n"), "*1 *-1 ");
}

/// The source of redis-cli's help and hints.
#[test]
fn the_arguments_of_commands_are_told() {
    let mut house = House::new(false);
    let mut client = house.client();
    let lpop = house.say(&mut client, b"COMMAND DOCS lpop none\r\n");
    assert!(lpop.starts_with("*2 $4 lpop *10 $7 summary $39 "), "{lpop}");
    let (_, behind) = lpop.split_once(" $5 since ").unwrap();
    assert_eq!(
        behind,
        "$5 1.0.0 $5 group $4 list $10 complexity $24 O(N) with N the elements $9 arguments *2 \
         *6 $4 name $3 key $4 type $3 key $14 key_spec_index :0 \
         *6 $4 name $5 count $4 type $7 integer $5 flags *1 +optional "
    );
    let get = house.say(&mut client, b"COMMAND DOCS config|resetstat\r\n");
    assert!(get.starts_with("*2 $16 config|resetstat *8 $7 summary "), "{get}");
    house.say(&mut client, b"HELLO 3\r\n");
    let sort = house.say(&mut client, b"COMMAND DOCS sort_ro\r\n");
    assert!(sort.starts_with("%1 $7 sort_ro %5 $7 summary "), "{sort}");
    let of_get = "%5 $4 name $7 pattern $4 type $7 pattern $14 key_spec_index :1 $5 token $3 GET \
                  $5 flags ~3 +optional +multiple +multiple_token ";
    assert!(sort.contains(of_get), "{sort}");
    let of_order = "%4 $4 name $5 order $4 type $5 oneof $5 flags ~1 +optional $9 arguments *2 \
                    %3 $4 name $3 asc $4 type $10 pure-token $5 token $3 ASC \
                    %3 $4 name $4 desc $4 type $10 pure-token $5 token $4 DESC ";
    assert!(sort.contains(of_order), "{sort}");
    let config = house.say(&mut client, b"COMMAND DOCS config\r\n");
    assert!(config.contains(" $11 subcommands %5 $10 config|get %5 $7 summary "), "{config}");
    assert_eq!(house.say(&mut client, b"COMMAND DOCS none config|none\r\n"), "%0 ");
    let count = house.say(&mut client, b"COMMAND COUNT\r\n");
    let all = house.say(&mut client, b"COMMAND DOCS\r\n");
    assert!(all.starts_with(&count.replace(':', "%")), "{count}");
}

/// Rules can be tried on commands whose keys have several kinds of access.
#[test]
fn rules_are_tried_on_the_keys_of_commands() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"ACL SETUSER u +@all %R~r* %W~w* ~b*\r\n");
    for (command, denied) in [
        ("PFCOUNT r1 r2", ""),
        ("PFCOUNT r1 w", "w"),
        ("XLEN w", ""),
        ("XLEN no", "no"),
        ("GEORADIUS r 1 2 3 M STORE w", ""),
        ("GEORADIUS r 1 2 3 M STORE r2", "r2"),
        ("EVAL text 1 b", ""),
        ("EVAL text 1 r", "r"),
        ("EVAL_RO text 1 r", ""),
    ] {
        let said = house.say(&mut client, format!("ACL DRYRUN u {command}\r\n").as_bytes());
        match denied {
            "" => assert_eq!(said, "+OK ", "{command}"),
            key => assert!(said.contains(&format!("access the '{key}' key")), "{command}: {said}"),
        }
    }
    assert_eq!(house.say(&mut client, b"COMMAND GETKEYS XGROUP CREATE k g $\r\n"), "*1 $1 k ");
    assert_eq!(house.say(&mut client, b"COMMAND GETKEYS EVAL text 0 a\r\n"), "*0 ");
}

/// Values that UNLINK leaves for later removal are counted.
#[test]
fn large_values_that_are_to_be_removed_are_counted() {
    let mut house = House::new(false);
    let mut client = house.client();
    let pending = |house: &mut House, client: &mut Conversation| {
        let info = house.say(client, b"INFO memory\r\n");
        let line = info.split(' ').find_map(|line| line.strip_prefix("lazyfree_pending_objects:"));
        line.map(str::to_string)
    };
    let members: String = (0..2_000).map(|n| format!(" member{n}")).collect();
    house.say(&mut client, format!("SADD set{members}\r\nSADD small a\r\n").as_bytes());
    assert_eq!(pending(&mut house, &mut client).as_deref(), Some("0"));
    house.say(&mut client, b"UNLINK set small\r\n");
    assert_eq!(pending(&mut house, &mut client).as_deref(), Some("1"));
    let tables = house.shared.store.opened.cloned().tables;
    while crate::data::collections::remove_garbage(&mut house.session, tables).unwrap() {}
    assert_eq!(pending(&mut house, &mut client).as_deref(), Some("0"));
}

#[test]
fn wrong_arguments_are_errors() {
    transcript(&[
        ("CLIENT TRACKING OFF", "+OK"),
        ("CLIENT TRACKINGINFO", "*6 $5 flags *1 $3 off $8 redirect :-1 $8 prefixes *0"),
        ("CLIENT TRACKING ON", "+OK"),
        ("WAIT 0 0", ":0"),
        ("WAIT 0 -1", "-ERR timeout is negative"),
        ("WAIT 0 x", "-ERR timeout is not an integer or out of range"),
        ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
        ("MEMORY USAGE a SAMPLES 5", "$-1"),
        ("MEMORY USAGE a SAMPLES -1", "-ERR syntax error"),
        ("MEMORY USAGE a SAMPLES x", "-ERR value is not an integer or out of range"),
        ("MEMORY USAGE a x", "-ERR syntax error"),
        ("PING", "+PONG"),
    ]);
}
