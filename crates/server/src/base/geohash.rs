//! Places on the earth as numbers of 52 bits, in an order that keeps neighbours together, and
//! distances. The numbers, the distances and the cells of a search are as in Redis.
//!
//! A longitude and a latitude have 26 bits each, alternating in the number: the first bits of a
//! number name a *cell*, and the numbers of a cell are consecutive. A search covers a shape by the
//! cell of its middle and the eight cells around, of a size large enough to contain the shape.

use std::f64::consts::PI;
use std::ops::Range;

/// The steps of the smallest cell: bits of a longitude, and of a latitude.
const MOST_STEPS: u32 = 26;

/// The earth is a sphere of this radius, in metres.
const RADIUS: f64 = 6_372_797.560_856;

/// Half of the girth of the earth on the map, in metres.
const HALF_OF_MAP: f64 = 20_037_726.37;

/// From the lowest to the highest coordinate.
type Bounds = (f64, f64);

const LONGITUDES: Bounds = (-180.0, 180.0);
/// Latitudes of a square map.
const LATITUDES: Bounds = (-85.051_128_78, 85.051_128_78);
/// Latitudes of geohashes as text.
const ALL_LATITUDES: Bounds = (-90.0, 90.0);

/// The digits of geohashes as text.
const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
/// The number of digits. The last digit would need more bits than there are, and is 0.
const LENGTH: usize = 11;

/// A place, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeoPlace {
    /// Positive in the east.
    pub longitude: f64,
    /// Positive in the north.
    pub latitude: f64,
}

/// Spreads bits: each bit is followed by a 0.
fn spread(bits: u32) -> u64 {
    let masks = [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ];
    masks.iter().fold(bits.into(), |bits: u64, (shift, mask)| (bits | bits << shift) & mask)
}

/// The reverse of [`spread`], of whatever lies between.
fn gather(bits: u64) -> u32 {
    let masks = [
        (0, 0x5555_5555_5555_5555),
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ];
    masks.iter().fold(bits, |bits, (shift, mask)| (bits | bits >> shift) & mask) as u32
}

/// A cell: the first bits of its longitudes and latitudes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    column: u32,
    row: u32,
    steps: u32,
}

/// The part of `bounds` of a column or a row.
fn part(at: u32, steps: u32, bounds: Bounds) -> Bounds {
    let (size, all) = (f64::from(1u32 << steps), bounds.1 - bounds.0);
    let edge = |at: f64| bounds.0 + at / size * all;
    (edge(f64::from(at)), edge(f64::from(at) + 1.0))
}

impl Cell {
    /// The cell of a place. The cell of the greatest coordinate lies behind the last cell.
    fn of(place: GeoPlace, steps: u32, latitudes: Bounds) -> Cell {
        let at = |value: f64, bounds: Bounds| {
            ((value - bounds.0) / (bounds.1 - bounds.0) * f64::from(1u32 << steps)) as u32
        };
        let column = at(place.longitude, LONGITUDES);
        Cell { column, row: at(place.latitude, latitudes), steps }
    }

    fn bits(self) -> u64 {
        spread(self.row) | spread(self.column) << 1
    }

    /// The numbers of the places in the cell.
    pub fn scores(self) -> Range<u64> {
        let shift = 2 * (MOST_STEPS - self.steps);
        self.bits() << shift..(self.bits() + 1) << shift
    }

    /// The neighbour this number of columns and rows away; cells at an end of the map have
    /// neighbours at the opposite end.
    fn moved(self, columns: i32, rows: i32) -> Cell {
        let mask = (1 << self.steps) - 1;
        let moved = |at: u32, by: i32| match by {
            0 => at,
            by => at.wrapping_add_signed(by) & mask,
        };
        Cell { column: moved(self.column, columns), row: moved(self.row, rows), ..self }
    }

    fn longitudes(self) -> Bounds {
        part(self.column, self.steps, LONGITUDES)
    }

    fn latitudes(self) -> Bounds {
        part(self.row, self.steps, LATITUDES)
    }
}

impl GeoPlace {
    /// Whether the place is on the map.
    pub fn is_valid(self) -> bool {
        let is_in = |value: f64, bounds: Bounds| (bounds.0..=bounds.1).contains(&value);
        is_in(self.longitude, LONGITUDES) && is_in(self.latitude, LATITUDES)
    }

    /// The number of the place.
    pub fn score(self) -> u64 {
        Cell::of(self, MOST_STEPS, LATITUDES).bits()
    }

    /// The middle of the smallest cell of a number; a score of another kind gives some place.
    pub fn of_score(score: f64) -> GeoPlace {
        // A negative score is no number of a place: all its bits are taken, as in C.
        let bits = if score < 0.0 { score as i64 as u64 } else { score as u64 };
        let cell = Cell { column: gather(bits >> 1), row: gather(bits), steps: MOST_STEPS };
        let middle =
            |part: Bounds, bounds: Bounds| ((part.0 + part.1) / 2.0).clamp(bounds.0, bounds.1);
        GeoPlace {
            longitude: middle(cell.longitudes(), LONGITUDES),
            latitude: middle(cell.latitudes(), LATITUDES),
        }
    }

    /// The geohash of 11 digits, for other programs.
    pub fn geohash(self) -> [u8; LENGTH] {
        let bits = Cell::of(self, MOST_STEPS, ALL_LATITUDES).bits();
        let mut text = [DIGITS[0]; LENGTH];
        for (at, digit) in text.iter_mut().take(LENGTH - 1).enumerate() {
            *digit = DIGITS[(bits >> (47 - 5 * at)) as usize & 0x1f];
        }
        text
    }

    /// Metres to another place, on the surface.
    pub fn distance(self, other: GeoPlace) -> f64 {
        let (a, b) = (radians(self.latitude), radians(other.latitude));
        let across = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if across == 0.0 {
            return RADIUS * (b - a).abs();
        }
        let along = ((b - a) / 2.0).sin();
        let half = (along * along + a.cos() * b.cos() * across * across).sqrt();
        2.0 * RADIUS * half.asin()
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (PI / 180.0)
}

/// The area of a search, around a place; in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// With this radius.
    Circle(f64),
    /// Of this width and this height.
    Box(f64, f64),
}

impl Shape {
    /// The distance of a place from the middle, if the place lies in the shape.
    pub fn distance_within(self, middle: GeoPlace, place: GeoPlace) -> Option<f64> {
        match self {
            Shape::Circle(radius) => {
                Some(middle.distance(place)).filter(|distance| *distance <= radius)
            }
            Shape::Box(width, height) => {
                let upright = RADIUS * (radians(place.latitude) - radians(middle.latitude)).abs();
                let beside = GeoPlace { longitude: middle.longitude, ..place };
                let is_in = upright <= height / 2.0 && place.distance(beside) <= width / 2.0;
                is_in.then(|| middle.distance(place))
            }
        }
    }

    /// The bounds of the longitudes and the latitudes of the shape.
    fn bounds(self, middle: GeoPlace) -> (Bounds, Bounds) {
        let (width, height) = match self {
            Shape::Circle(radius) => (radius, radius),
            Shape::Box(width, height) => (width / 2.0, height / 2.0),
        };
        let up = degrees(height / RADIUS);
        // The shape is widest, in degrees, at its end nearest to a pole.
        let widest = if middle.latitude < 0.0 { -up } else { up };
        let across = degrees(width / RADIUS / radians(middle.latitude + widest).cos());
        let around = |value: f64, by: f64| (value - by, value + by);
        (around(middle.longitude, across), around(middle.latitude, up))
    }

    /// The steps of cells of a size with which nine cells cover the shape, mostly.
    fn steps(self, middle: GeoPlace) -> u32 {
        let mut reach = match self {
            Shape::Circle(radius) => radius,
            Shape::Box(width, height) => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        if reach == 0.0 {
            return MOST_STEPS;
        }
        let mut steps = 1;
        while reach < HALF_OF_MAP {
            reach *= 2.0;
            steps += 1;
        }
        // Towards the poles a degree of longitude is short.
        let latitude = middle.latitude.abs();
        let fewer = 2 + i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        (steps - fewer).clamp(1, MOST_STEPS as i32) as u32
    }

    /// The cells that cover the shape, in the order of the search: the cell of the middle, then the
    /// neighbours that the shape reaches. No place of the shape lies in another cell.
    pub fn cells(self, middle: GeoPlace) -> Vec<Cell> {
        /// Columns to the east, rows to the north.
        const AROUND: [(i32, i32); 8] =
            [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let (longitudes, latitudes) = self.bounds(middle);
        let mut own = Cell::of(middle, self.steps(middle), LATITUDES);
        let is_covered = own.moved(0, 1).latitudes().1 >= latitudes.1
            && own.moved(0, -1).latitudes().0 <= latitudes.0
            && own.moved(1, 0).longitudes().1 >= longitudes.1
            && own.moved(-1, 0).longitudes().0 <= longitudes.0;
        if own.steps > 1 && !is_covered {
            own = Cell::of(middle, own.steps - 1, LATITUDES);
        }
        let (columns, rows) = (own.longitudes(), own.latitudes());
        let reaches = |&(column, row): &(i32, i32)| {
            let is_out = row < 0 && rows.0 < latitudes.0
                || row > 0 && rows.1 > latitudes.1
                || column < 0 && columns.0 < longitudes.0
                || column > 0 && columns.1 > longitudes.1;
            own.steps < 2 || !is_out
        };
        let around = AROUND.iter().filter(|at| reaches(at)).map(|at| own.moved(at.0, at.1));
        let mut cells = vec![own];
        cells.extend(around);
        // Where a map has two columns, the neighbours on both sides are the same.
        cells.dedup();
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(longitude: f64, latitude: f64) -> GeoPlace {
        GeoPlace { longitude, latitude }
    }

    /// The numbers and texts are from redis-server 7.0.15.
    #[test]
    fn numbers_and_texts_are_those_of_redis() {
        let (palermo, catania) = (place(13.361389, 38.115556), place(15.087269, 37.502669));
        assert_eq!(
            (palermo.score(), catania.score()),
            (3_479_099_956_230_698, 3_479_447_370_796_909)
        );
        assert_eq!(&GeoPlace::of_score(palermo.score() as f64).geohash(), b"sqc8b49rny0");
        let [a, b] = [palermo, catania].map(|place| GeoPlace::of_score(place.score() as f64));
        assert_eq!(format!("{:.4}", a.distance(b)), "166274.1516");
        for score in [f64::NEG_INFINITY, f64::INFINITY, -1.0, 1e300] {
            assert!(GeoPlace::of_score(score).is_valid(), "{score}");
        }
    }

    proptest! {
        /// The places in a shape are in its cells, at most nine. (Shapes over the end of the map
        /// are cut there, as in Redis.)
        #[test]
        fn places_in_a_shape_are_in_its_cells(
            (longitude, latitude) in (-179.0..179.0f64, -84.0..84.0f64),
            (east, north) in (-1.0..1.0f64, -1.0..1.0f64),
            (width, height) in (1.0..2e6f64, 1.0..2e6f64),
            is_circle: bool,
        ) {
            let middle = place(longitude, latitude);
            let shape = if is_circle { Shape::Circle(width) } else { Shape::Box(width, height) };
            let (longitudes, latitudes) = shape.bounds(middle);
            prop_assume!(longitudes.0 > -180.0 && longitudes.1 < 180.0);
            let across = (longitudes.1 - longitudes.0) / 2.0;
            let up = (latitudes.1 - latitudes.0) / 2.0;
            let other = place(longitude + east * across, latitude + north * up);
            prop_assume!(other.is_valid() && shape.distance_within(middle, other).is_some());
            let (cells, score) = (shape.cells(middle), other.score());
            prop_assert!(cells.len() <= 9);
            prop_assert!(cells.iter().any(|cell| cell.scores().contains(&score)));
        }

        /// A place is near to the place of its number, and gathering undoes spreading.
        #[test]
        fn a_number_says_where_it_is(
            longitude in -180.0..180.0f64, latitude in -85.05..85.05f64, bits: u32,
        ) {
            let here = place(longitude, latitude);
            prop_assert!(here.distance(GeoPlace::of_score(here.score() as f64)) < 0.6);
            prop_assert_eq!(gather(spread(bits)), bits);
        }
    }
}
