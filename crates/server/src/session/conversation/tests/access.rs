//! Users, logins, and refusals.

use super::*;
use std::time::Duration;

/// Says lines as a client; each reply belongs to one line.
fn says(house: &mut House, client: &mut Conversation, lines: &[(&str, &str)]) {
    for (line, expected) in lines {
        let said = house.say(client, format!("{line}\r\n").as_bytes());
        assert!(said.starts_with(expected), "{line}: {said}");
    }
}

const NOAUTH: &str = "-NOAUTH Authentication required. ";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled. ";

#[test]
fn a_password_is_asked_for() {
    let mut house = House::new(false);
    let mut admin = house.client();
    let missing = "-ERR AUTH <password> called without any password configured for the default \
                   user. Are you sure your configuration is correct? ";
    says(
        &mut house,
        &mut admin,
        &[
            ("AUTH x", missing),
            ("AUTH default x", "+OK"),
            ("AUTH missing x", WRONG),
            ("AUTH a b c", "-ERR syntax error"),
            ("CONFIG SET requirepass secret", "+OK"),
            ("GET a", "$-1"),
        ],
    );
    let mut client = house.client();
    says(
        &mut house,
        &mut client,
        &[
            ("SET a 1", NOAUTH),
            ("PING", NOAUTH),
            ("MULTI", NOAUTH),
            ("HELLO 3", "-NOAUTH HELLO must be called with the client already authenticated"),
            ("AUTH wrong", WRONG),
            ("HELLO 2 AUTH default wrong", WRONG),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            ("NOSUCH a", "-ERR unknown command 'NOSUCH'"),
            ("HELLO 2 AUTH default secret", "*14"),
            ("SET a 1", "+OK"),
            ("RESET", "+RESET"),
            ("GET a", NOAUTH),
            ("AUTH secret", "+OK"),
            ("GET a", "$1 1"),
            ("CONFIG SET requirepass \"\"", "+OK"),
            ("RESET", "+RESET"),
            ("GET a", "$1 1"),
        ],
    );
}

#[test]
fn who_has_not_logged_in_sends_little() {
    let mut house = House::new(false);
    let mut admin = house.client();
    says(&mut house, &mut admin, &[("CONFIG SET requirepass secret", "+OK")]);
    for (sent, expected) in [
        (&b"*11\r\n"[..], "-ERR Protocol error: unauthenticated multibulk length "),
        (b"*1\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length "),
    ] {
        let mut client = house.client();
        assert_eq!(house.say(&mut client, sent), expected);
        assert!(client.is_closing());
    }
    let mut client = house.client();
    assert_eq!(house.say(&mut client, b"*10\r\n$16384\r\n"), "");
    assert!(!client.is_closing());
    let mut client = house.client();
    says(&mut house, &mut client, &[("AUTH secret", "+OK")]);
    assert_eq!(house.say(&mut client, b"*11\r\n$16385\r\n"), "");
    assert!(!client.is_closing());
}

/// As in Redis: an unknown subcommand is an error before missing rights are.
#[test]
fn an_unknown_subcommand_is_said_whatever_the_rights() {
    let mut house = House::new(false);
    let (mut admin, mut client) = (house.client(), house.client());
    says(&mut house, &mut admin, &[("ACL SETUSER a on nopass ~* +@all -client -object", "+OK")]);
    let unknown = "-ERR unknown subcommand 'NoSuch'. Try CLIENT HELP. ";
    says(&mut house, &mut client, &[("AUTH a x", "+OK"), ("CLIENT NoSuch a", unknown)]);
    says(
        &mut house,
        &mut client,
        &[
            ("OBJECT NOSUCH k", "-ERR unknown subcommand 'NOSUCH'. Try OBJECT HELP. "),
            ("CLIENT", "-ERR wrong number of arguments for 'client' command"),
            ("MULTI", "+OK"),
            ("CLIENT NoSuch", unknown),
            ("EXEC", "-EXECABORT"),
        ],
    );
    // None of the errors is a refusal.
    says(&mut house, &mut admin, &[("ACL LOG", "*0")]);
    let refused = "-NOPERM this user has no permissions to run the 'client|list' command ";
    says(&mut house, &mut client, &[("CLIENT LIST", refused)]);
    says(&mut house, &mut admin, &[("ACL LOG", "*1"), ("CONFIG SET requirepass s", "+OK")]);
    let mut client = house.client();
    says(&mut house, &mut client, &[("CLIENT ID", NOAUTH), ("CLIENT NoSuch", unknown)]);
}

#[test]
fn rules_hold_in_runs_in_multi_and_in_exec() {
    let mut house = House::new(false);
    let (mut admin, mut client) = (house.client(), house.client());
    says(&mut house, &mut admin, &[("ACL SETUSER a on >p +@all -del ~k* &c", "+OK")]);
    says(&mut house, &mut client, &[("AUTH a p", "+OK"), ("ACL WHOAMI", "$1 a")]);
    let key = "-NOPERM this user has no permissions to access one of the keys used as arguments ";
    let del = "-NOPERM this user has no permissions to run the 'del' command ";
    let channel =
        "-NOPERM this user has no permissions to access one of the channels used as arguments ";
    // A request is refused, its neighbours run.
    let said = house.say(&mut client, b"SET k1 1\r\nSET x 1\r\nDEL k1\r\nGET k1\r\n");
    assert_eq!(said, format!("+OK {key}{del}$1 1 "));
    says(
        &mut house,
        &mut client,
        &[
            ("PUBLISH d m", channel),
            ("PUBLISH c m", ":0"),
            ("CLIENT LIST", ""),
            ("MULTI", "+OK"),
            ("DEL k1", del),
            ("EXEC", "-EXECABORT"),
            ("MULTI", "+OK"),
            ("SET k1 2", "+QUEUED"),
            ("PUBLISH c m", "+QUEUED"),
            ("STRLEN k1", "+QUEUED"),
        ],
    );
    says(&mut house, &mut admin, &[("ACL SETUSER a -set resetchannels", "+OK")]);
    let changed = "-NOPERM ACLs rules changed between the moment the transaction was accumulated \
                   and the EXEC call. This command is no longer allowed for the following reason: ";
    let said = house.say(&mut client, b"EXEC\r\n");
    let expected = format!(
        "*3 {changed}no permission to execute the command or subcommand {changed}no permission to \
         access one of the channels used as arguments :1 "
    );
    assert_eq!(said, expected);
    says(
        &mut house,
        &mut admin,
        &[
            (
                "ACL LOG 1",
                "*1 *14 $5 count :1 $6 reason $7 channel $7 context $5 multi $6 object $1 c",
            ),
            ("ACL LOG RESET", "+OK"),
            ("ACL LOG", "*0"),
        ],
    );
    assert!(house.say(&mut admin, b"CLIENT LIST\r\n").contains("user=a "));
}

/// A word in the place of an option's value is not an option.
#[test]
fn sort_stores_only_under_keys_that_are_allowed() {
    let mut house = House::new(false);
    let (mut admin, mut client) = (house.client(), house.client());
    says(&mut house, &mut admin, &[("ACL SETUSER bob on nopass ~a* +@all", "+OK")]);
    says(&mut house, &mut client, &[("AUTH bob x", "+OK"), ("RPUSH a1 x", ":1")]);
    let key = "-NOPERM this user has no permissions to access one of the keys used as arguments ";
    for line in [
        "SORT a1 STORE victim BY store asc",
        "SORT a1 LIMIT store 1 STORE victim",
        "SORT a1 STORE a2 STORE victim",
        "SORT a1 store victim GET store",
    ] {
        says(&mut house, &mut client, &[(line, key)]);
    }
    let keys = "COMMAND GETKEYS SORT a1 STORE victim BY store asc";
    says(&mut house, &mut admin, &[(keys, "*2 $2 a1 $6 victim")]);
}

/// A queued or waiting command is refused once its user may not run it any more.
#[test]
fn rights_are_looked_at_when_a_command_runs() {
    let mut house = House::new(false);
    let (mut admin, mut client) = (house.client(), house.client());
    says(&mut house, &mut admin, &[("ACL SETUSER bob on nopass ~* +@all", "+OK")]);
    says(
        &mut house,
        &mut client,
        &[("AUTH bob x", "+OK"), ("MULTI", "+OK"), ("SORT k GET p*", "+QUEUED")],
    );
    says(&mut house, &mut admin, &[("ACL SETUSER bob resetkeys ~k", "+OK")]);
    let said = house.say(&mut client, b"EXEC\r\n");
    assert!(said.contains("option of SORT denied"), "{said}");
    assert_eq!(house.say(&mut client, b"BLPOP k 0\r\n"), "");
    says(&mut house, &mut admin, &[("ACL SETUSER bob -blpop", "+OK"), ("RPUSH k x", ":1")]);
    let said = house.say(&mut client, b"");
    assert_eq!(said, "-NOPERM this user has no permissions to run the 'blpop' command ");
    says(&mut house, &mut admin, &[("LLEN k", ":1")]);
}

#[test]
fn a_removed_user_has_no_rights() {
    let mut house = House::new(false);
    let (mut admin, mut client) = (house.client(), house.client());
    says(&mut house, &mut admin, &[("ACL SETUSER a on nopass +@all ~*", "+OK")]);
    says(&mut house, &mut client, &[("AUTH a x", "+OK"), ("GET k", "$-1")]);
    says(
        &mut house,
        &mut admin,
        &[("ACL SETUSER b", "+OK"), ("ACL DELUSER a", ":1"), ("ACL SETUSER a +@all ~*", "+OK")],
    );
    // The client's loop disconnects it; until then, and whatever user has the name now, the client
    // may do nothing.
    assert!(client.client.entry.is_killed.load(std::sync::atomic::Ordering::Relaxed));
    says(&mut house, &mut client, &[("GET k", "-NOPERM"), ("ACL WHOAMI", "-NOPERM")]);
}

#[test]
fn a_subscriber_that_may_not_listen_any_more_is_disconnected() {
    let mut house = House::new(false);
    let (mut admin, mut one, mut two) = (house.client(), house.client(), house.client());
    says(&mut house, &mut admin, &[("ACL SETUSER a on nopass +@all &c &d &p*", "+OK")]);
    says(&mut house, &mut one, &[("AUTH a x", "+OK"), ("PSUBSCRIBE p1", "-NOPERM")]);
    says(&mut house, &mut one, &[("PSUBSCRIBE p*", "*3"), ("SUBSCRIBE c", "*3")]);
    says(&mut house, &mut two, &[("AUTH a x", "+OK"), ("SUBSCRIBE d", "*3")]);
    let is_killed = |conversation: &Conversation| {
        conversation.client.entry.is_killed.load(std::sync::atomic::Ordering::Relaxed)
    };
    says(&mut house, &mut admin, &[("ACL SETUSER a resetchannels &c &d &p*", "+OK")]);
    assert!(!is_killed(&one) && !is_killed(&two));
    says(&mut house, &mut admin, &[("ACL SETUSER a resetchannels &c &d &p", "+OK")]);
    assert!(is_killed(&one) && !is_killed(&two));
}

#[test]
fn who_guesses_passwords_waits() {
    let mut house = House::new(false);
    let mut client = house.client();
    for _ in 0..10 {
        says(&mut house, &mut client, &[("AUTH a wrong", WRONG)]);
    }
    // A busy machine takes a while to look at the delays: they are long.
    fail_four_times(&house);
    let begin = Instant::now();
    assert_eq!(house.say(&mut client, b"AUTH default x\r\nPING\r\n"), "", "even if it is right");
    let until = client.deadline().expect("it is held");
    assert!(until > begin && until <= Instant::now() + Duration::from_millis(1_600));
    assert!(!client.has_work(), "a loop sleeps meanwhile");
    // Another client of the address waits as well before a login.
    let mut other = house.client();
    assert!(house.say(&mut other, b"PING\r\nHELLO 2\r\nAUTH a wrong\r\n").len() > 7);
    assert!(other.deadline().is_some());
    std::thread::sleep(Duration::from_millis(1_610));
    assert!(client.has_work());
    assert_eq!(house.say(&mut client, b""), "+OK +PONG ");
    assert_eq!(client.deadline(), None);
    assert_eq!(house.say(&mut other, b""), WRONG);
    assert_eq!(house.say(&mut other, b"AUTH a wrong\r\n"), "");
    assert!(other.deadline().unwrap() > Instant::now() + Duration::from_millis(1_610));
}

/// From the address of all clients: the next attempt has to wait for 1.6 seconds then, if ten have
/// failed before.
fn fail_four_times(house: &House) {
    let address = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    (0..4).for_each(|_| house.shared.access.throttle.failed(address, Instant::now()));
}

/// A login holds from the end of EXEC on. A transaction may have one attempt: EXEC waits for it, as
/// AUTH does.
#[test]
fn a_transaction_may_log_in_once() {
    let mut house = House::new(false);
    let (mut admin, mut client) = (house.client(), house.client());
    says(&mut house, &mut admin, &[("ACL SETUSER a on >p ~k* +@all -acl|whoami", "+OK")]);
    says(
        &mut house,
        &mut client,
        &[
            ("MULTI", "+OK"),
            ("SET x 1", "+QUEUED"),
            ("AUTH a p", "+QUEUED"),
            ("SET x 2", "+QUEUED"),
            ("ACL WHOAMI", "+QUEUED"),
            ("EXEC", "*4 +OK +OK +OK $1 a"),
            ("SET x 3", "-NOPERM"),
            ("SET k 3", "+OK"),
            ("MULTI", "+OK"),
            ("SET k 4", "+QUEUED"),
            ("HELLO 3 AUTH a wrong", "+QUEUED"),
            ("EXEC", &format!("*2 +OK {WRONG}")),
            ("GET k", "$1 4"),
            ("MULTI", "+OK"),
            ("AUTH a p", "+QUEUED"),
            ("AUTH a p", "-ERR Command not allowed inside a transaction: send AUTH outside"),
            ("EXEC", "-EXECABORT"),
            ("MULTI", "+OK"),
            ("HELLO 2 AUTH a p", "+QUEUED"),
            ("AUTH a p", "-ERR Command not allowed inside a transaction: send AUTH outside"),
            ("DISCARD", "+OK"),
        ],
    );
    let log = house.say(&mut admin, b"ACL LOG\r\n");
    assert!(log.contains("$6 reason $4 auth $7 context $5 multi $6 object $5 HELLO "), "{log}");
}

#[test]
fn who_guesses_passwords_in_transactions_waits_too() {
    let mut house = House::new(false);
    let mut client = house.client();
    for _ in 0..10 {
        says(&mut house, &mut client, &[("MULTI", "+OK"), ("AUTH a wrong", "+QUEUED")]);
        says(&mut house, &mut client, &[("EXEC", &format!("*1 {WRONG}"))]);
    }
    fail_four_times(&house);
    let said = house.say(&mut client, b"MULTI\r\nSET k 1\r\nAUTH a wrong\r\nEXEC\r\nPING\r\n");
    assert_eq!(said, "+OK +QUEUED +QUEUED ", "EXEC waits, and what is behind it");
    assert!(client.deadline().is_some() && !client.has_work());
    std::thread::sleep(Duration::from_millis(1_610));
    assert_eq!(house.say(&mut client, b""), format!("*2 +OK {WRONG}+PONG "));
    // Neither a command that queues an attempt waits, nor DISCARD.
    let said = house.say(&mut client, b"MULTI\r\nAUTH a wrong\r\nDISCARD\r\n");
    assert_eq!(said, "+OK +QUEUED +OK ");
    let said = house.say(&mut client, b"MULTI\r\nPING\r\nEXEC\r\n");
    assert_eq!(said, "+OK +QUEUED *1 +PONG ");
    assert_eq!(house.say(&mut client, b"AUTH a wrong\r\n"), "");
}

#[test]
fn the_subcommands_of_acl() {
    let mut house = House::new(false);
    let mut client = house.client();
    says(
        &mut house,
        &mut client,
        &[
            ("ACL WHOAMI", "$7 default"),
            ("ACL LIST", "*1 $34 user default on nopass ~* &* +@all"),
            ("ACL SETUSER \"a b\"", "-ERR Usernames can't contain spaces or null characters"),
            ("ACL SETUSER a +nothing", "-ERR Error in ACL SETUSER modifier '+nothing': Unknown"),
            ("ACL SETUSER a (+get", "-ERR Unmatched parenthesis in acl selector starting at"),
            ("ACL GETUSER a", "$-1"),
            ("ACL SETUSER a on (+get ~x)", "+OK"),
            (
                "ACL GETUSER a",
                "*12 $5 flags *1 $2 on $9 passwords *0 $8 commands $5 -@all $4 keys $0  \
                 $8 channels $0  $9 selectors *1 *6 $8 commands $10 -@all +get $4 keys $2 ~x",
            ),
            ("ACL DRYRUN a GET x", "+OK"),
            ("ACL DRYRUN a GET y", "$50 This user has no permissions to access the 'y' key"),
            ("ACL DRYRUN a SET x 1", "$53 This user has no permissions to run the 'set' command"),
            ("ACL DRYRUN b GET x", "-ERR User 'b' not found"),
            ("ACL DRYRUN a NOSUCH x", "-ERR Command 'NOSUCH' not found"),
            ("ACL DRYRUN a GET", "-ERR wrong number of arguments for 'get' command"),
            ("ACL SETUSER c +@all ~x", "+OK"),
            ("ACL DRYRUN c EVAL s 1 y", "$50 This user has no permissions to access the 'y' key"),
            // A request with more keys than arguments is wrong, which is no matter of keys.
            ("ACL DRYRUN c EVAL s 2 y", "+OK"),
            ("ACL DELUSER c", ":1"),
            ("ACL USERS", "*2 $1 a $7 default"),
            ("ACL DELUSER a x", ":1"),
            ("ACL DELUSER default", "-ERR The 'default' user cannot be removed"),
            ("ACL CAT", "*21 $8 keyspace"),
            ("ACL CAT nothing", "-ERR Unknown category 'nothing'"),
            ("ACL CAT a b", "-ERR unknown subcommand or wrong number of arguments for 'CAT'"),
            ("ACL GENPASS 5", "$2 "),
            ("ACL GENPASS", "$64 "),
            ("ACL GENPASS 4097", "-ERR ACL GENPASS argument must be the number of bits"),
            ("ACL LOAD", "-ERR This Redis instance is not configured to use an ACL file."),
            ("ACL SAVE", "-ERR This Redis instance is not configured to use an ACL file."),
            ("ACL HELP x", "-ERR wrong number of arguments for 'acl|help' command"),
            ("ACL NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try ACL HELP."),
            ("CLIENT KILL USER missing", "-ERR No such user 'missing'"),
        ],
    );
}
