//! Details of scripts as in Redis: sorted sets of a constant, and misuse; and the number of scripts
//! in INFO.

use super::scripts::{request, says, scripts};
use super::*;

#[test]
fn misuse_of_functions_of_the_server_is_told() {
    let mut house = House::new(false);
    let mut client = house.client();
    says(
        &mut house,
        &mut client,
        &[(
            &["EVAL", "return redis.log()", "0"],
            "-ERR redis.log() requires two arguments or more. script: \
                 28e28bf25123668ac541f5eec91bf7ad3d2fe0bd, on @user_script:1.",
        )],
    );
    scripts(
        &mut house,
        &mut client,
        &[(
            "return redis.call(cjson.null, 'get', 's')",
            "-ERR Lua redis lib command arguments must be strings or integers",
        )],
    );
}

/// Redis sorts so that scripts are deterministic: the members of a set have an order of their own.
#[test]
fn a_set_that_a_script_sorts_by_a_constant_is_sorted() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"SADD s b a c 10 9\r\nRPUSH l b a c\r\n");
    scripts(
        &mut house,
        &mut client,
        &[
            ("return redis.call('sort','s','by','_')", "*5 $2 10 $1 9 $1 a $1 b $1 c"),
            ("return redis.call('sort','s','by','_','desc','limit',0,2)", "*2 $1 c $1 b"),
            (
                "return redis.call('sort','s','by','_','get','#','get','_:*')",
                "*10 $2 10 $-1 $1 9 $-1 $1 a $-1 $1 b $-1 $1 c $-1",
            ),
            // A list has an order.
            ("return redis.call('sort','l','by','_')", "*3 $1 b $1 a $1 c"),
        ],
    );
}

/// The number of scripts in INFO.
fn cached_scripts(house: &mut House, client: &mut Conversation) -> u64 {
    let told = house.say(client, b"INFO memory\r\n");
    let number = told.split("number_of_cached_scripts:").nth(1).unwrap();
    number.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn scripts_that_are_loaded_count_until_they_are_flushed() {
    let mut house = House::new(false);
    let mut client = house.client();
    for n in 0..5 {
        house.say(&mut client, &request(&["SCRIPT", "LOAD", &format!("return {n}")]));
    }
    house.say(&mut client, &request(&["SCRIPT", "LOAD", "return 0"]));
    house.say(&mut client, &request(&["EVAL", "return 'x'", "0"]));
    assert_eq!(cached_scripts(&mut house, &mut client), 6);
    // Scripts that an EXEC takes back do not count.
    house.say(&mut client, b"HYADES.ROLLBACK ON\r\nMULTI\r\nSCRIPT FLUSH\r\nINCR\r\n");
    house.say(&mut client, b"DISCARD\r\nMULTI\r\nSET s x\r\nSCRIPT FLUSH\r\nINCR s\r\nEXEC\r\n");
    assert_eq!(cached_scripts(&mut house, &mut client), 6);
    house.say(&mut client, b"SCRIPT FLUSH ASYNC\r\n");
    assert_eq!(cached_scripts(&mut house, &mut client), 0);
}
