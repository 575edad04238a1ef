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

/// A number in INFO memory.
fn number_of(house: &mut House, client: &mut Conversation, what: &str) -> u64 {
    let told = house.say(client, b"INFO memory\r\n");
    let number = told.split(&format!("number_of_{what}:")).nth(1).unwrap();
    number.split_whitespace().next().unwrap().parse().unwrap()
}

/// The number of scripts in INFO.
fn cached_scripts(house: &mut House, client: &mut Conversation) -> u64 {
    number_of(house, client, "cached_scripts")
}

#[test]
fn libraries_and_functions_are_counted() {
    let mut house = House::new(false);
    let mut client = house.client();
    let mut counts = |house: &mut House, line: &[&str]| {
        house.say(&mut client, &request(line));
        ["libraries", "functions"].map(|what| number_of(house, &mut client, what))
    };
    let library = |name: &str, functions: usize| {
        let register = |n| format!("redis.register_function('{name}{n}', function() end)\n");
        format!("#!lua name={name}\n{}", (0..functions).map(register).collect::<String>())
    };
    let (small, large) = (library("small", 1), library("large", 3));
    assert_eq!(counts(&mut house, &["FUNCTION", "LOAD", &small]), [1, 1]);
    assert_eq!(counts(&mut house, &["FUNCTION", "LOAD", &large]), [2, 4]);
    let fewer = library("large", 2);
    assert_eq!(counts(&mut house, &["FUNCTION", "LOAD", "REPLACE", &fewer]), [2, 3]);
    assert_eq!(counts(&mut house, &["FUNCTION", "DELETE", "small"]), [1, 2]);
    let mut house = super::large::reopened(house);
    let opened = house.shared.store.opened.cloned();
    crate::upkeep::opening::count_keys(&house.shared, &opened.database, opened.tables).unwrap();
    let mut client = house.client();
    let both = ["libraries", "functions"].map(|what| number_of(&mut house, &mut client, what));
    assert_eq!(both, [1, 2]);
    house.say(&mut client, b"FUNCTION FLUSH\r\n");
    assert_eq!(number_of(&mut house, &mut client, "functions"), 0);
}

/// A seed holds to the end of a script: no later one can know what is drawn.
#[test]
fn a_seed_of_random_numbers_ends_with_its_script() {
    let mut house = House::new(false);
    let mut client = house.client();
    let mut draw = |script: &str| house.say(&mut client, &request(&["EVAL", script, "0"]));
    let seeded = "math.randomseed(7) return tostring(math.random())";
    assert_eq!(draw(seeded), draw(seeded));
    let drawn = draw("return tostring(math.random())");
    draw(seeded);
    assert_ne!(drawn, draw("return tostring(math.random())"));
    let behind = "math.randomseed(7) math.random() return tostring(math.random())";
    let known = draw(behind);
    draw(seeded);
    assert_ne!(known, draw("return tostring(math.random())"));
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
