//! Makes charts from the results of runs.

use crate::chart::{Bar, Chart, Line, Marks};
use crate::data::View;
use crate::experiment::{Panel, Shape};

/// The chart of a panel; none if none of its runs has figures.
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
            let marks = Marks::Lines { lines, x: x.to_string(), log_x: *log_x, log_y: *log_y };
            (marks, panel.metric.label())
        }
        Shape::Derived { lines, x, log_x, y } => {
            let mut lines = lines(view, panel.group);
            lines.retain(|line| !line.points.is_empty());
            (Marks::Lines { lines, x: x.to_string(), log_x: *log_x, log_y: false }, *y)
        }
        Shape::Parts { stacks, names, y } => {
            let parts = names.iter().map(|name| name.to_string()).collect();
            (Marks::Stacks { stacks: stacks(view, panel.group), parts }, *y)
        }
    };
    let empty = match &marks {
        Marks::Lines { lines, .. } => lines.is_empty(),
        Marks::Stacks { stacks, .. } => stacks.is_empty(),
        Marks::Bars { .. } => false,
    };
    (!empty).then(|| Chart {
        title: panel.title.clone(),
        y: y.to_string(),
        marks,
        simulated: view.experiment.is_simulated(),
    })
}

fn bars(
    view: &View<'_>,
    panel: &Panel,
    log: bool,
    paper: &[(&'static str, &'static str, f64)],
) -> Option<Marks> {
    let bars: Vec<Bar> = view
        .runs(panel.group)
        // A run to which the metric does not apply, as recovery without a log, has no bar.
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
