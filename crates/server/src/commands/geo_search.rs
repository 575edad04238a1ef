//! Searches for places in a circle or a box.

use super::geo::{place, place_of, show_distance, show_place, unit};
use super::sorted_sets::score;
use super::{Done, SYNTAX, integer, is};
use crate::base::geohash::{GeoPlace, Shape};
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::values::sorted_set::{StoredSortedSet, replace, score_bytes, sort};
use crate::resp::reply::Reply;

/// The commands by their arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchKind {
    /// Options name the middle and the shape.
    Search,
    /// As `Search`, with the results stored as a sorted set.
    SearchStore,
    /// A place and a radius, and whether options may store the results.
    Radius(bool),
    /// A member and a radius.
    RadiusByMember(bool),
}

/// The request of a search.
#[derive(Default)]
struct Query<'a> {
    middle: Option<GeoPlace>,
    /// The middle is a member: without a middle, the member's set does not exist.
    is_from_member: bool,
    shape: Option<Shape>,
    /// Metres of the unit of distances.
    metres: f64,
    shows_distance: bool,
    shows_score: bool,
    shows_place: bool,
    /// Any members are wanted, not the nearest.
    any: bool,
    most: Option<usize>,
    /// The order of distances, if any.
    descending: Option<bool>,
    store: Option<&'a [u8]>,
    /// Distances are stored.
    stores_distances: bool,
}

impl<'a> Query<'a> {
    fn set_radius(&mut self, radius: &[u8], text: &[u8]) -> Result<(), Stop> {
        let radius = score(radius).ok_or("ERR need numeric radius")?;
        if radius < 0.0 {
            return Err("ERR radius cannot be negative".into());
        }
        self.metres = unit(text)?;
        self.shape = Some(Shape::Circle(radius * self.metres));
        Ok(())
    }

    fn set_box(&mut self, width: &[u8], height: &[u8], text: &[u8]) -> Result<(), Stop> {
        let width = score(width).ok_or("ERR need numeric width")?;
        let height = score(height).ok_or("ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err("ERR height or width cannot be negative".into());
        }
        self.metres = unit(text)?;
        self.shape = Some(Shape::Box(width * self.metres, height * self.metres));
        Ok(())
    }

    fn set_member(&mut self, set: &StoredSortedSet<'_, '_>, member: &[u8]) -> Result<(), Stop> {
        // For a missing set, other errors are told first.
        self.middle = if set.exists() { Some(place_of(set, member)?) } else { None };
        self.is_from_member = true;
        Ok(())
    }

    /// Reads the arguments of a command.
    fn read(
        kind: SearchKind,
        args: &[&'a [u8]],
        set: &StoredSortedSet<'_, '_>,
    ) -> Result<Query<'a>, Stop> {
        let mut query = Query { metres: 1.0, ..Query::default() };
        let mut at = match kind {
            SearchKind::Radius(_) => {
                query.middle = Some(place(args[2], args[3])?);
                query.set_radius(args[4], args[5])?;
                6
            }
            SearchKind::RadiusByMember(_) => {
                query.set_member(set, args[2])?;
                if set.exists() {
                    query.set_radius(args[3], args[4])?;
                }
                5
            }
            SearchKind::Search => 2,
            SearchKind::SearchStore => {
                query.store = Some(args[1]);
                3
            }
        };
        while at < args.len() {
            let takes = match query.set_flag(kind, args[at]) {
                true => 0,
                false => query.read_option(kind, args[at], &args[at + 1..], set)?,
            };
            at += 1 + takes;
        }
        query.check(kind, args[0])?;
        Ok(query)
    }

    /// Sets the flag named by a word without a value, if there is one.
    fn set_flag(&mut self, kind: SearchKind, word: &[u8]) -> bool {
        let flag = match () {
            () if is(word, "WITHDIST") => &mut self.shows_distance,
            () if is(word, "WITHHASH") => &mut self.shows_score,
            () if is(word, "WITHCOORD") => &mut self.shows_place,
            () if is(word, "ANY") => &mut self.any,
            () if kind == SearchKind::SearchStore && is(word, "STOREDIST") => {
                &mut self.stores_distances
            }
            () => {
                let is_order = is(word, "ASC") || is(word, "DESC");
                if is_order {
                    self.descending = Some(is(word, "DESC"));
                }
                return is_order;
            }
        };
        *flag = true;
        true
    }

    /// Reads an option with its values; returns the number of values.
    fn read_option(
        &mut self,
        kind: SearchKind,
        word: &[u8],
        rest: &[&'a [u8]],
        set: &StoredSortedSet<'_, '_>,
    ) -> Result<usize, Stop> {
        let searches = matches!(kind, SearchKind::Search | SearchKind::SearchStore);
        let may_store = matches!(kind, SearchKind::Radius(true) | SearchKind::RadiusByMember(true));
        let is_from_place = self.middle.is_some() && !self.is_from_member;
        Ok(match *rest {
            [count, ..] if is(word, "COUNT") => {
                let count = usize::try_from(integer(count)?).ok().filter(|count| *count > 0);
                self.most = Some(count.ok_or("ERR COUNT must be > 0")?);
                1
            }
            [key, ..] if may_store && (is(word, "STORE") || is(word, "STOREDIST")) => {
                (self.store, self.stores_distances) = (Some(key), is(word, "STOREDIST"));
                1
            }
            [member, ..] if searches && is(word, "FROMMEMBER") && !is_from_place => {
                self.set_member(set, member)?;
                1
            }
            [longitude, latitude, ..]
                if searches && is(word, "FROMLONLAT") && !self.is_from_member =>
            {
                self.middle = Some(place(longitude, latitude)?);
                2
            }
            [radius, unit, ..]
                if searches
                    && is(word, "BYRADIUS")
                    && !matches!(self.shape, Some(Shape::Box(..))) =>
            {
                self.set_radius(radius, unit)?;
                2
            }
            [width, height, unit, ..]
                if searches
                    && is(word, "BYBOX")
                    && !matches!(self.shape, Some(Shape::Circle(_))) =>
            {
                self.set_box(width, height, unit)?;
                3
            }
            _ => return Err(SYNTAX.into()),
        })
    }

    /// Returns an error if options do not go together, or a necessary option is missing.
    fn check(&self, kind: SearchKind, command: &[u8]) -> Result<(), Stop> {
        let name = String::from_utf8_lossy(command);
        let (searches, stores) = match kind {
            SearchKind::Search => (true, ""),
            SearchKind::SearchStore => (true, "GEOSEARCHSTORE"),
            SearchKind::Radius(_) | SearchKind::RadiusByMember(_) => {
                (false, "STORE option in GEORADIUS")
            }
        };
        let shows = self.shows_distance || self.shows_score || self.shows_place;
        let wrong = match () {
            () if self.store.is_some() && shows => {
                format!("{stores} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")
            }
            () if searches && self.middle.is_none() && !self.is_from_member => {
                format!("exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}")
            }
            () if searches && self.shape.is_none() => {
                format!("exactly one of BYRADIUS and BYBOX can be specified for {name}")
            }
            () if self.any && self.most.is_none() => {
                "the ANY argument requires COUNT argument".to_string()
            }
            () => return Ok(()),
        };
        Err(format!("ERR {wrong}").into())
    }

    /// Returns the found members, each with its distance in metres.
    fn run<'t>(
        &self,
        space: &Keyspace<'_>,
        set: &StoredSortedSet<'t, '_>,
    ) -> Result<Vec<FoundPlace<'t>>, Stop> {
        // Middle and shape are known unless there is no set.
        let (Some(middle), Some(shape)) = (self.middle, self.shape) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let enough = self.most.filter(|_| self.any).unwrap_or(usize::MAX);
        for cell in shape.cells(middle) {
            if found.len() >= enough {
                break;
            }
            let (mut visited, scores) = (0, cell.scores());
            let [low, high] = [scores.start, scores.end].map(|score| score_bytes(score as f64));
            set.visit(&low, &high, |score, member| {
                let place = GeoPlace::of_score(score);
                let distance = shape.distance_within(middle, place);
                found.extend(distance.map(|distance| FoundPlace {
                    member,
                    score,
                    place,
                    distance,
                }));
                visited += 1;
                found.len() < enough
            })?;
            space.charge(visited)?;
        }
        // The nearest members, if only some are wanted and not any.
        let order = self.descending.or(self.most.filter(|_| !self.any).map(|_| false));
        match order {
            Some(false) => found.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
            Some(true) => found.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
            None => {}
        }
        found.truncate(self.most.unwrap_or(usize::MAX));
        Ok(found)
    }

    fn show(&self, found: &[FoundPlace<'_>], reply: &mut Reply<'_>) {
        let shown = [self.shows_distance, self.shows_score, self.shows_place];
        let parts = shown.iter().filter(|is_shown| **is_shown).count();
        reply.array(found.len());
        for FoundPlace { member, score, place, distance } in found {
            if parts > 0 {
                reply.array(1 + parts);
            }
            reply.bulk(member);
            if self.shows_distance {
                show_distance(distance / self.metres, reply);
            }
            if self.shows_score {
                reply.integer(*score as i64);
            }
            if self.shows_place {
                show_place(*place, reply);
            }
        }
    }
}

/// A member found by a search.
struct FoundPlace<'t> {
    member: &'t [u8],
    score: f64,
    place: GeoPlace,
    distance: f64,
}

fn search(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, kind: SearchKind) -> Done {
    let source = if kind == SearchKind::SearchStore { args[2] } else { args[1] };
    let set = StoredSortedSet::of(space.read(source)?)?;
    let query = Query::read(kind, args, &set)?;
    let found = query.run(space, &set)?;
    let Some(target) = query.store else {
        query.show(&found, reply);
        return Ok(());
    };
    let score = |found: &FoundPlace<'_>| match query.stores_distances {
        true => found.distance / query.metres,
        false => found.score,
    };
    let mut stored = found.iter().map(|found| (score(found), found.member)).collect();
    sort(&mut stored);
    reply.count(stored.len());
    replace(space, target, &stored)
}

pub fn geosearch(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    search(space, args, reply, SearchKind::Search)
}

pub fn geosearchstore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    search(space, args, reply, SearchKind::SearchStore)
}

pub fn georadius(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    search(space, args, reply, SearchKind::Radius(true))
}

pub fn georadius_ro(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    search(space, args, reply, SearchKind::Radius(false))
}

pub fn georadiusbymember(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    search(space, args, reply, SearchKind::RadiusByMember(true))
}

pub fn georadiusbymember_ro(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    search(space, args, reply, SearchKind::RadiusByMember(false))
}
