//! Transcripts of commands on places.

use super::*;

const ADD: &str = "GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";
const AROUND: &str = "GEOSEARCH s FROMLONLAT 15 37";

#[test]
fn members_have_places() {
    transcript(&[
        (ADD, ":2"),
        ("GEOADD s NX CH 13.4 38 Palermo", ":0"),
        ("GEOADD s XX CH 13.361389 38.2 Palermo 1 1 none", ":1"),
        ("GEOADD s CH 13.361389 38.115556 Palermo", ":1"),
        ("ZSCORE s Palermo", "$16 3479099956230698"),
        ("GEODIST s Palermo Catania", "$11 166274.1516"),
        ("GEODIST s Palermo Catania km", "$8 166.2742"),
        ("GEODIST s Palermo none", "$-1"),
        ("GEODIST s Palermo Catania x", "-ERR unsupported unit provided. please use M, KM, FT, MI"),
        ("GEODIST s Palermo Catania m m", "-ERR syntax error"),
        ("GEOHASH s Palermo Catania none", "*3 $11 sqc8b49rny0 $11 sqdtr74hyu0 $-1"),
        ("GEOPOS s Palermo x", "*2 *2 $20 13.36138933897018433 $20 38.11555639549629859 *-1"),
        ("GEOADD s 181 1 a", "-ERR invalid longitude,latitude pair 181.000000,1.000000"),
        ("GEOADD s x 1 a", "-ERR value is not a valid float"),
        ("GEOADD s 1 1 a 2", "-ERR syntax error"),
        ("GEOADD s NX XX 1 1 a", "-ERR syntax error"),
        ("GEOADD s NX CH", "-ERR wrong number of arguments for 'geoadd' command"),
        ("GEOPOS none a", "*1 *-1"),
        ("SET t a", "+OK"),
        ("GEOPOS t a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
}

#[test]
fn shapes_are_searched() {
    let search = |rest: &str| format!("{AROUND} {rest}");
    let lines = [
        (ADD.to_string(), ":2"),
        (search("BYRADIUS 200 km ASC"), "*2 $7 Catania $7 Palermo"),
        (
            search("BYRADIUS 200 km DESC WITHDIST"),
            "*2 *2 $7 Palermo $8 190.4424 *2 $7 Catania $7 56.4413",
        ),
        (search("BYRADIUS 100 km WITHHASH"), "*1 *2 $7 Catania :3479447370796909"),
        (search("BYBOX 400 400 km COUNT 1"), "*1 $7 Catania"),
        (search("BYBOX 10 400 km"), "*0"),
        (search("BYRADIUS 200 km COUNT 1 ANY"), "*1 $7 Palermo"),
        (search("BYRADIUS 200 km ANY"), "-ERR the ANY argument requires COUNT argument"),
        (search("BYRADIUS 200 km COUNT 0"), "-ERR COUNT must be > 0"),
        (search("BYRADIUS -1 km"), "-ERR radius cannot be negative"),
        (search("BYRADIUS x km"), "-ERR need numeric radius"),
        (search("BYBOX 1 -1 km"), "-ERR height or width cannot be negative"),
        (search("BYBOX 1 1 km BYRADIUS 1 m"), "-ERR syntax error"),
        (search("FROMMEMBER Palermo BYRADIUS 1 m"), "-ERR syntax error"),
        (
            search("ASC ASC ASC"),
            "-ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH",
        ),
        (
            "geosearch s BYRADIUS 1 m ASC ASC".into(),
            "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for geosearch",
        ),
        (
            "GEOSEARCH s FROMMEMBER x BYRADIUS 1 m".into(),
            "-ERR could not decode requested zset member",
        ),
        ("GEOSEARCH none FROMMEMBER x BYRADIUS 1 m".into(), "*0"),
        (
            "GEORADIUS s 15 37 100 km WITHCOORD".into(),
            "*1 *2 $7 Catania *2 $20 15.08726745843887329 $20 37.50266842333162032",
        ),
        ("GEORADIUSBYMEMBER_RO s Palermo 200 km".into(), "*2 $7 Palermo $7 Catania"),
        ("GEORADIUS_RO s 15 37 100 km STORE t".into(), "-ERR syntax error"),
        ("GEORADIUSBYMEMBER none x a b".into(), "*0"),
    ];
    transcript(&lines.each_ref().map(|(line, reply)| (line.as_str(), *reply)));
}

#[test]
fn what_is_found_is_stored() {
    let refused = "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and \
                   WITHCOORD options";
    transcript(&[
        (ADD, ":2"),
        ("GEOSEARCHSTORE t s FROMLONLAT 15 37 BYRADIUS 200 km COUNT 1", ":1"),
        ("ZRANGE t 0 -1 WITHSCORES", "*2 $7 Catania $16 3479447370796909"),
        ("GEOSEARCHSTORE t s FROMLONLAT 15 37 BYBOX 400 400 km STOREDIST", ":2"),
        ("ZRANGE t 0 -1", "*2 $7 Catania $7 Palermo"),
        ("GEORADIUS s 15 37 200 km STORE x STOREDIST t", ":2"),
        ("EXISTS x", ":0"),
        ("GEORADIUS s 15 37 200 km WITHDIST STORE x", refused),
        ("GEORADIUS none 15 37 200 km STORE t", ":0"),
        ("EXISTS t", ":0"),
        ("GEORADIUSBYMEMBER none x y z STORE t", ":0"),
        ("GEORADIUSBYMEMBER s Palermo 1 m STORE s", ":1"),
        ("ZCARD s", ":1"),
    ]);
}

/// A search reads the cells around its shape, and no distant cells.
#[test]
fn a_search_reads_what_is_near() {
    let mut house = House::new(false);
    let mut c = house.client();
    for row in 0..100 {
        let place = |column: i32| {
            format!(
                " {} {} m{row}:{column}",
                f64::from(column) * 3.6 - 179.0,
                f64::from(row) * 1.7 - 85.0
            )
        };
        let line = format!("GEOADD s{}\r\n", (0..100).map(place).collect::<String>());
        assert_eq!(house.say(&mut c, line.as_bytes()), ":100 ");
    }
    let large = |house: &House| house.shared.stats.counters.large.load(Relaxed);
    let before = large(&house);
    let found = house.say(&mut c, b"GEOSEARCH s FROMMEMBER m50:50 BYRADIUS 10 km\r\n");
    assert_eq!(found, "*1 $6 m50:50 ");
    // All members are more than a loop reads at once.
    assert_eq!(large(&house), before);
}
