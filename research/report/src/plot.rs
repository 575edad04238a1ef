//! Makes charts from the results of runs.

use crate::chart::{Bar, Chart, Line, Marks};
use crate::data::View;
use crate::experiment::{Panel, Shape};

/// The chart of a panel; none if no run has figures, or the panel is a table.
pub fn chart(view: &View<'_>, panel: &Panel) -> Option<Chart> {
    let (marks, y) = match &panel.shape {
        Shape::Bars { log, paper } => (bars(view, panel, *log, paper)?, panel.metric.label()),
        Shape::Lines { x, log_x, log_y } => {
            let lines: Vec<Line> = view
                .series(panel.group)
                .into_iter()
                .map(|label| Line {
                    label: label.to_string(),
                    points: view.points(panel.group, label, panel.metric),
                })
                .filter(|line| !line.points.is_empty())
                .collect();
            (plain(lines, x, *log_x, *log_y), panel.metric.label())
        }
        Shape::Curve => {
            let lines = view.series(panel.group).into_iter().map(|label| Line {
                label: label.to_string(),
                points: view.points(panel.group, label, panel.metric),
            });
            (curve(lines.collect(), Vec::new()), panel.metric.label())
        }
        Shape::Ratios { pairs } => (ratios(view, panel, pairs), "ratio"),
        Shape::Derived { lines, x, log_x, y } => {
            let mut lines = lines(view, panel.group);
            lines.retain(|line| !line.points.is_empty());
            (plain(lines, x, *log_x, false), *y)
        }
        Shape::Parts { stacks, names, y } => {
            let parts = names.iter().map(|name| name.to_string()).collect();
            (Marks::Stacks { stacks: stacks(view, panel.group), parts }, *y)
        }
        Shape::Table(_) => return None,
    };
    let empty = match &marks {
        Marks::Lines { lines, .. } => lines.is_empty(),
        Marks::Stacks { stacks, .. } => stacks.is_empty(),
        Marks::Bars { .. } => false,
    };
    let is_point = matches!(panel.shape, Shape::Curve | Shape::Ratios { .. })
        && matches!(marks, Marks::Bars { .. });
    let at = if is_point { ", at the paper's hardware, scaled" } else { "" };
    (!empty).then(|| Chart {
        title: format!("{}{at}", panel.title),
        y: y.to_string(),
        marks,
        simulated: view.experiment.is_simulated(),
    })
}

fn plain(mut lines: Vec<Line>, x: &str, log_x: bool, log_y: bool) -> Marks {
    drop_infinite(&mut lines);
    Marks::Lines { lines, x: x.to_string(), log_x, log_y, mark: None, claims: Vec::new() }
}

/// No axis has a place for a ratio to nothing: the text of the findings has such ratios.
fn drop_infinite(lines: &mut [Line]) {
    lines.iter_mut().for_each(|line| line.points.retain(|(_, spread)| spread.is_finite()));
}

/// From this factor between the longest and the shortest bar on, lengths are logarithmic.
const WIDE: f64 = 10.0;

/// Lines over bandwidth; bars if the only bandwidth is the bandwidth of the paper's hardware.
fn curve(mut lines: Vec<Line>, claims: Vec<(usize, f64, f64)>) -> Marks {
    drop_infinite(&mut lines);
    let is_alone = |line: &Line| line.points.iter().all(|(x, _)| *x == 1.0);
    if lines.iter().any(|line| !line.points.is_empty()) && lines.iter().all(is_alone) {
        let bar = |(at, line): (usize, &Line)| {
            let (_, value) = line.points.first()?;
            let claimed = claims.iter().find(|(claimed_at, ..)| *claimed_at == at);
            let paper = claimed.map(|(.., claim)| *claim);
            Some(Bar { label: line.label.clone(), value: Ok(*value), paper })
        };
        let values = || lines.iter().filter_map(|line| Some(line.points.first()?.1.median));
        let least = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let log = values().fold(0.0, f64::max) >= WIDE * least;
        return Marks::Bars { bars: lines.iter().enumerate().filter_map(bar).collect(), log };
    }
    lines.retain(|line| !line.points.is_empty());
    Marks::Lines {
        lines,
        x: "bandwidth of the devices / that of the paper's hardware, scaled".to_string(),
        log_x: true,
        log_y: true,
        mark: Some((1.0, "the paper's hardware".to_string())),
        claims,
    }
}

fn ratios(view: &View<'_>, panel: &Panel, pairs: &[(&'static str, &'static str, f64)]) -> Marks {
    let (mut lines, mut claims) = (Vec::new(), Vec::new());
    for (series, over, claim) in pairs {
        let xs = view.runs(panel.group).filter(|run| run.series == *series).map(|run| run.x);
        let points: Vec<_> = xs
            .filter_map(|x| {
                Some((x, view.ratio(panel.group, panel.metric, (series, x), (over, x))?))
            })
            .collect();
        if !points.is_empty() {
            claims.push((lines.len(), 1.0, *claim));
            lines.push(Line { label: format!("over {over}: {series}"), points });
        }
    }
    curve(lines, claims)
}

fn bars(
    view: &View<'_>,
    panel: &Panel,
    log: bool,
    paper: &[(&'static str, &'static str, f64)],
) -> Option<Marks> {
    let bars: Vec<Bar> = view
        .runs(panel.group)
        // A run without the metric, as recovery without a log, has no bar.
        .filter(|run| view.spread(run, panel.metric).is_some() || view.trouble(run).is_some())
        .map(|run| {
            let claimed = paper.iter().find(|(series, ..)| *series == run.series);
            Bar {
                label: run.series.clone(),
                value: view
                    .spread(run, panel.metric)
                    .ok_or_else(|| view.trouble(run).unwrap_or_default()),
                paper: claimed.and_then(|(_, over, ratio)| {
                    Some(view.median(panel.group, over, 0.0, panel.metric)? * ratio)
                }),
            }
        })
        .collect();
    bars.iter().any(|bar| bar.value.is_ok()).then_some(Marks::Bars { bars, log })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Spread;

    fn line(label: &str, points: &[(f64, f64)]) -> Line {
        let points = points.iter().map(|(x, value)| (*x, Spread::one(*value))).collect();
        Line { label: label.to_string(), points }
    }

    #[test]
    fn one_bandwidth_makes_bars_and_two_make_lines() {
        let claims = || vec![(1, 1.0, 9.0)];
        let lines = vec![line("a", &[(1.0, 2.0)]), line("b", &[(1.0, 3.0)]), line("c", &[])];
        let Marks::Bars { bars, log } = curve(lines, claims()) else { panic!("no bars") };
        assert!(!log && bars.len() == 2);
        assert_eq!((bars[0].paper, bars[1].paper), (None, Some(9.0)));
        let wide = vec![line("a", &[(1.0, 2.0)]), line("b", &[(1.0, 20.0)])];
        assert!(matches!(curve(wide, claims()), Marks::Bars { log: true, .. }));
        let lines = vec![line("a", &[(1.0, 2.0)]), line("b", &[(1.0, 3.0), (8.0, 4.0)])];
        assert!(matches!(curve(lines, claims()), Marks::Lines { .. }));
        assert!(matches!(curve(vec![line("c", &[])], claims()), Marks::Lines { .. }));
    }

    #[test]
    fn what_is_infinite_is_not_drawn() {
        let some = || vec![line("a", &[(1.0, 2.0), (8.0, f64::INFINITY)])];
        for marks in [curve(some(), Vec::new()), plain(some(), "x", false, false)] {
            let drawn = match marks {
                Marks::Lines { lines, .. } => lines.iter().map(|line| line.points.len()).sum(),
                Marks::Bars { bars, .. } => bars.len(),
                Marks::Stacks { .. } => 0,
            };
            assert_eq!(drawn, 1);
        }
    }
}
