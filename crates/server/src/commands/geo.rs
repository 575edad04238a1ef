//! Sorted sets whose members are places: their scores are numbers of places.

use super::sorted_sets::{AddOptions, NOT_A_FLOAT, add_scored, score};
use super::{Done, SYNTAX, is};
use crate::base::geohash::GeoPlace;
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::values::sorted_set::StoredSortedSet;
use crate::resp::reply::Reply;

/// Reads a longitude and a latitude.
pub fn place(longitude: &[u8], latitude: &[u8]) -> Result<GeoPlace, Stop> {
    let number = |text: &[u8]| score(text).ok_or(NOT_A_FLOAT);
    let place = GeoPlace { longitude: number(longitude)?, latitude: number(latitude)? };
    if !place.is_valid() {
        let GeoPlace { longitude, latitude } = place;
        let text = "ERR invalid longitude,latitude pair";
        return Err(format!("{text} {longitude:.6},{latitude:.6}").into());
    }
    Ok(place)
}

/// The metres of a unit.
pub fn unit(text: &[u8]) -> Result<f64, Stop> {
    const UNITS: [(&str, f64); 4] = [("m", 1.0), ("km", 1_000.0), ("ft", 0.3048), ("mi", 1_609.34)];
    let found = UNITS.iter().find(|(name, _)| is(text, name)).map(|(_, metres)| *metres);
    found.ok_or_else(|| "ERR unsupported unit provided. please use M, KM, FT, MI".into())
}

/// Replies a distance.
pub fn show_distance(distance: f64, reply: &mut Reply<'_>) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

/// Replies a longitude and a latitude.
pub fn show_place(place: GeoPlace, reply: &mut Reply<'_>) {
    reply.array(2);
    for degrees in [place.longitude, place.latitude] {
        let text = format!("{degrees:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        reply.double_text(if text == "-0" { b"0" } else { text.as_bytes() });
    }
}

/// The places of members.
fn places(set: &StoredSortedSet<'_, '_>, names: &[&[u8]]) -> Result<Vec<Option<GeoPlace>>, Stop> {
    let scores = set.scores(names)?.into_iter();
    Ok(scores.map(|score| score.map(GeoPlace::of_score)).collect())
}

/// The place of a required member.
pub fn place_of(set: &StoredSortedSet<'_, '_>, member: &[u8]) -> Result<GeoPlace, Stop> {
    let place = places(set, &[member])?[0];
    place.ok_or_else(|| "ERR could not decode requested zset member".into())
}

pub fn geoadd(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (mut options, mut at) = (AddOptions::default(), 2);
    while let Some(option) = args.get(at) {
        match option {
            _ if is(option, "NX") => options.only_new = true,
            _ if is(option, "XX") => options.only_known = true,
            _ if is(option, "CH") => options.changed = true,
            _ => break,
        }
        at += 1;
    }
    let items = &args[at..];
    let is_whole = !items.is_empty() && items.len().is_multiple_of(3);
    if !is_whole || options.only_new && options.only_known {
        return Err(SYNTAX.into());
    }
    let scores = items.chunks_exact(3).map(|item| Ok(place(item[0], item[1])?.score() as f64));
    let scores = scores.collect::<Result<Vec<_>, Stop>>()?;
    let members: Vec<&[u8]> = items.chunks_exact(3).map(|item| item[2]).collect();
    add_scored(space, (args[1], &options), (&scores, &members), reply)
}

pub fn geodist(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let metres = match &args[4..] {
        [] => 1.0,
        [text] => unit(text)?,
        _ => return Err(SYNTAX.into()),
    };
    let set = StoredSortedSet::of(space.read(args[1])?)?;
    match places(&set, &args[2..4])?[..] {
        [Some(a), Some(b)] => show_distance(a.distance(b) / metres, reply),
        _ => reply.null(),
    }
    Ok(())
}

pub fn geohash(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let set = StoredSortedSet::of(space.read(args[1])?)?;
    reply.array(args.len() - 2);
    for place in places(&set, &args[2..])? {
        reply.bulk_or_null(place.map(GeoPlace::geohash).as_ref().map(<[u8; 11]>::as_slice));
    }
    Ok(())
}

pub fn geopos(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let set = StoredSortedSet::of(space.read(args[1])?)?;
    reply.array(args.len() - 2);
    for place in places(&set, &args[2..])? {
        match place {
            Some(place) => show_place(place, reply),
            None => reply.null_array(),
        }
    }
    Ok(())
}
