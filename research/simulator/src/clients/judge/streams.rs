//! The possible states of a recovered stream.

use super::{Choice, MOST_TRIED};
use crate::clients::model::streams::{RecoveredStream, StreamPart};
use crate::clients::model::{Body, CellContent, CellName, Model, VersionedCell};

fn ends(cell: &VersionedCell, is_so: impl Fn(&CellContent) -> bool) -> Vec<usize> {
    (0..cell.versions.len()).filter(|at| is_so(&cell.versions[*at].0)).collect()
}

/// The cells of a stream with their parts.
pub(super) fn parts(
    model: &Model,
    number: usize,
) -> impl Iterator<Item = (usize, &VersionedCell, &StreamPart)> {
    model.cells.iter().enumerate().filter_map(move |(at, cell)| match &cell.name {
        CellName::Stream { stream, part } if *stream == number => Some((at, cell, part)),
        _ => None,
    })
}

/// The possible states of a key with a stream, by the streams of the key and their groups.
pub(super) fn of_stream(
    model: &Model,
    head: usize,
    (found, expires): (&RecoveredStream, Option<i64>),
) -> Vec<Choice> {
    let is_of = |content: &CellContent, number: usize| match content {
        CellContent::Value { body: Body::Stream(stream), expires: until } => {
            *stream == number && *until == expires
        }
        _ => false,
    };
    let streams = model.cells[head].versions.iter().filter_map(|(content, _)| match content {
        CellContent::Value { body: Body::Stream(stream), .. } => Some(*stream),
        _ => None,
    });
    let mut streams: Vec<usize> = streams.collect();
    streams.sort_by(|a, b| b.cmp(a));
    streams.dedup();
    let mut all = Vec::new();
    for stream in streams {
        let heads = ends(&model.cells[head], |content| is_of(content, stream));
        if !heads.is_empty() {
            all.extend(of_number(model, stream, found).into_iter().map(|mut choice| {
                choice.push((head, heads.clone()));
                choice
            }));
        }
    }
    all
}

fn of_number(model: &Model, stream: usize, found: &RecoveredStream) -> Vec<Choice> {
    let mut all: Vec<Choice> = vec![Vec::new()];
    let mut unknown: Vec<&String> = found.groups.keys().collect();
    for (at, cell, part) in parts(model, stream) {
        let own: Vec<Choice> = match part {
            StreamPart::Log => {
                let ends =
                    ends(cell, |content| matches!(content, CellContent::Log(l) if *l == found.log));
                if ends.is_empty() { Vec::new() } else { vec![vec![(at, ends)]] }
            }
            StreamPart::Group(name) => {
                unknown.retain(|other| *other != name);
                of_group(model, (stream, at), found, name)
            }
            // With its group.
            StreamPart::Pending(_) => continue,
        };
        let own = if all.len() * own.len() > MOST_TRIED { &own[..1] } else { &own[..] };
        all = all
            .iter()
            .flat_map(|before| own.iter().map(|own| [&before[..], &own[..]].concat()))
            .collect();
    }
    if unknown.is_empty() { all } else { Vec::new() }
}

/// The possible states of a name of groups: each group of the name has its own pending entries.
fn of_group(
    model: &Model,
    (stream, at): (usize, usize),
    found: &RecoveredStream,
    name: &str,
) -> Vec<Choice> {
    let cell = &model.cells[at];
    let Some((last, pending)) = found.groups.get(name) else {
        let absent = ends(cell, |content| matches!(content, CellContent::Group(None)));
        return if absent.is_empty() { Vec::new() } else { vec![vec![(at, absent)]] };
    };
    let mut numbers: Vec<usize> = Vec::new();
    for (content, _) in cell.versions.iter().rev() {
        match content {
            CellContent::Group(Some(group)) if group.last == *last => numbers.push(group.number),
            _ => {}
        }
    }
    numbers.dedup();
    let mut all = Vec::new();
    for number in numbers {
        let positions = ends(cell, |content| {
            matches!(content, CellContent::Group(Some(group))
                if group.number == number && group.last == *last)
        });
        let entries =
            parts(model, stream).find(|(_, _, part)| **part == StreamPart::Pending(number));
        let (entries, cell, _) = entries.expect("a group has pending entries, or none");
        let same =
            |content: &CellContent| matches!(content, CellContent::Pending(p) if p == pending);
        let own = ends(cell, same);
        if !own.is_empty() {
            all.push(vec![(at, positions), (entries, own)]);
        }
    }
    all
}

/// The versions of the parts of a stream, in words.
pub(super) fn shown(model: &Model, stream: usize) -> Vec<String> {
    let show = |(_, cell, part): (usize, &VersionedCell, &StreamPart)| {
        let contents: Vec<_> = cell.versions.iter().map(|(content, _)| content).collect();
        format!("{part:?}: {contents:?}")
    };
    parts(model, stream).map(show).collect()
}
