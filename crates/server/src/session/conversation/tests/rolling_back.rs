//! HYADES.ROLLBACK: an error of a command undoes the whole EXEC.

use super::*;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn an_error_undoes_all_if_the_client_wants_that() {
    let undone =
        format!("-EXECABORT nothing was done, since LPUSH, number 2, failed: {WRONG_TYPE}");
    let kept = format!("*3 +OK -{WRONG_TYPE} :1");
    transcript(&[
        ("HYADES.ROLLBACK", "$3 off"),
        ("HYADES.ROLLBACK maybe", "-ERR choose on (an error undoes all of EXEC) or off"),
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("LPUSH a x", "+QUEUED"),
        ("INCR n", "+QUEUED"),
        ("EXEC", &kept),
        ("HYADES.ROLLBACK ON", "+OK"),
        ("hyades.rollback", "$2 on"),
        ("MULTI", "+OK"),
        ("SET a 2", "+QUEUED"),
        ("LPUSH a x", "+QUEUED"),
        ("INCR n", "+QUEUED"),
        ("CLIENT SETNAME me", "+QUEUED"),
        ("EXEC", &undone),
        ("CLIENT GETNAME", "$-1"),
        ("MGET a n", "*2 $1 1 $1 1"),
        // Nothing but an error does so.
        ("MULTI", "+OK"),
        ("SET a 2 NX", "+QUEUED"),
        ("GET nothing", "+QUEUED"),
        ("INCR n", "+QUEUED"),
        ("EXEC", "*3 $-1 $-1 :2"),
        ("MULTI", "+OK"),
        (
            "HYADES.ROLLBACK off",
            "-ERR Command not allowed inside a transaction: send HYADES.ROLLBACK outside of MULTI",
        ),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("RESET", "+RESET"),
        ("HYADES.ROLLBACK", "$3 off"),
    ]);
}

#[test]
fn so_does_one_of_a_transaction_that_another_thread_runs() {
    let undone =
        format!("-EXECABORT nothing was done, since LPUSH, number 3, failed: {WRONG_TYPE}");
    transcript(&[
        ("HYADES.ROLLBACK on", "+OK"),
        ("SADD many a b", ":2"),
        ("MULTI", "+OK"),
        ("SETRANGE large 700000 x", "+QUEUED"),
        ("DEL many", "+QUEUED"),
        ("LPUSH large x", "+QUEUED"),
        ("EXEC", &undone),
        ("EXISTS large", ":0"),
        ("SCARD many", ":2"),
        ("DBSIZE", ":1"),
    ]);
}

#[test]
fn what_was_watched_is_looked_at_before() {
    let mut house = House::new(false);
    let (mut client, mut other) = (house.client(), house.client());
    assert_eq!(
        house.say(&mut client, b"HYADES.ROLLBACK on\r\nSET a 1\r\nWATCH a\r\n"),
        "+OK +OK +OK "
    );
    assert_eq!(house.say(&mut other, b"SET a 2\r\n"), "+OK ");
    let said = house.say(&mut client, b"MULTI\r\nLPUSH a x\r\nEXEC\r\n");
    assert_eq!(said, "+OK +QUEUED *-1 ");
}
