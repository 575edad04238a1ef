//! Charts as SVG: text in the page's colour, no scripts, no external resources.

use crate::axis::{Axis, short};
use crate::chart::{Bar, Chart, Line, Marks, Spread, Stack};
use crate::style::{self, Marker, Style};
use std::fmt::Write;

const WIDTH: f64 = 460.0;
/// The vertical extent of the plotting area of lines.
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
/// The height of a row in a legend.
const ROW: f64 = 17.0;
/// The distance from bar to bar.
const BAR: f64 = 22.0;
/// The largest value on the axis for a paper's mark, over the longest bar.
const FAR: f64 = 1.6;
/// The average width of a small letter, a little too wide so that legends never overlap.
const LETTER: f64 = 6.3;

/// Escapes text for use in markup.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// A marked position on the horizontal axis, and the name of the mark.
type Mark = (f64, String);
/// The number of a line, and a paper's claimed position and value.
type Claim = (usize, f64, f64);

/// The chart as an `svg` element.
pub fn draw(chart: &Chart) -> String {
    let mut out = Drawing { body: String::new() };
    let height = match &chart.marks {
        Marks::Lines { lines, x, log_x, log_y, mark, claims } => {
            out.lines(chart, lines, x, (*log_x, *log_y), (mark.as_ref(), claims))
        }
        Marks::Bars { bars, log } => out.bars(chart, bars, *log),
        Marks::Stacks { stacks, parts } => out.stacks(chart, stacks, parts),
    };
    if chart.simulated {
        out.text(WIDTH - RIGHT, 15.0, "end", "simulated", "SIMULATED");
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\" class=\"chart\" \
         font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\" font-size=\"11\" \
         fill=\"currentColor\"><title>{}</title>\n{}</svg>\n",
        escape(&format!("{}: {}", chart.title, chart.y)),
        out.body
    )
}

struct Drawing {
    body: String,
}

impl Drawing {
    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("writing to a string cannot fail");
        self.body.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let look = match class {
            "title" => "font-weight=\"bold\" font-size=\"12\"",
            "simulated" => {
                "font-weight=\"bold\" font-size=\"10\" fill=\"#d55e00\" letter-spacing=\"1\""
            }
            "faint" => "opacity=\"0.65\" font-size=\"10\"",
            "missing" => "opacity=\"0.65\" font-style=\"italic\" font-size=\"10\"",
            _ => "",
        };
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {look}>{}</text>",
            escape(text)
        ));
    }

    fn rule(&mut self, from: (f64, f64), to: (f64, f64), opacity: f64) {
        self.push(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"currentColor\" \
             stroke-width=\"1\" opacity=\"{opacity}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    fn marker(&mut self, (x, y): (f64, f64), style: Style, tip: &str) {
        let r = 3.8;
        let fill = if style.filled { style.colour } else { "var(--ground, white)" };
        let look = format!("fill=\"{fill}\" stroke=\"{}\" stroke-width=\"1.6\"", style.colour);
        let shape = match style.marker {
            Marker::Circle => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\" {look}>"),
            Marker::Square => {
                let (left, top, side) = (x - 3.4, y - 3.4, 6.8);
                format!(
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{side}\" height=\"{side}\" \
                     {look}>"
                )
            }
            Marker::Triangle => {
                polygon(&[(x, y - 4.4), (x + 4.2, y + 3.2), (x - 4.2, y + 3.2)], &look)
            }
            Marker::Diamond => {
                polygon(&[(x, y - 4.7), (x + 4.7, y), (x, y + 4.7), (x - 4.7, y)], &look)
            }
        };
        let name = shape[1..].split(' ').next().expect("a tag has a name").to_string();
        self.push(format_args!("{shape}<title>{}</title></{name}>", escape(tip)));
    }

    /// Draws an error bar between the extremes.
    fn error_bar(&mut self, low: (f64, f64), high: (f64, f64), colour: &str) {
        let (dx, dy) = if low.0 == high.0 { (3.0, 0.0) } else { (0.0, 3.0) };
        self.push(format_args!(
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}M{:.1} {:.1}L{:.1} {:.1}M{:.1} {:.1}L{:.1} {:.1}\" \
             stroke=\"{colour}\" stroke-width=\"1.1\" fill=\"none\" opacity=\"0.8\"/>",
            low.0,
            low.1,
            high.0,
            high.1,
            low.0 - dx,
            low.1 - dy,
            low.0 + dx,
            low.1 + dy,
            high.0 - dx,
            high.1 - dy,
            high.0 + dx,
            high.1 + dy,
        ));
    }

    /// Draws the entries of a legend in rows from `top`; returns the end of the rows.
    fn legend(&mut self, top: f64, entries: &[(&str, Result<Style, &str>)]) -> f64 {
        let (mut x, mut y) = (LEFT, top);
        for (label, look) in entries {
            let width = 30.0 + label.chars().count() as f64 * LETTER;
            if x > LEFT && x + width > WIDTH - RIGHT {
                (x, y) = (LEFT, y + ROW);
            }
            match look {
                Ok(style) => {
                    let dash = if style.dashed { " stroke-dasharray=\"4 2.5\"" } else { "" };
                    self.push(format_args!(
                        "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" \
                         stroke=\"{}\" stroke-width=\"1.8\"{dash}/>",
                        x + 20.0,
                        style.colour
                    ));
                    self.marker((x + 10.0, y), *style, label);
                }
                Err(colour) => self.push(format_args!(
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" fill=\"{colour}\"/>",
                    x + 7.0,
                    y - 6.0
                )),
            }
            self.text(x + 24.0, y + 4.0, "start", "", label);
            x += width;
        }
        y + ROW * 0.6
    }

    fn lines(
        &mut self,
        chart: &Chart,
        lines: &[Line],
        x: &str,
        log: (bool, bool),
        (mark, claims): (Option<&Mark>, &[Claim]),
    ) -> f64 {
        self.text(LEFT, 15.0, "start", "title", &chart.title);
        let styles: Vec<Style> =
            lines.iter().enumerate().map(|(at, line)| style::of(&line.label, at)).collect();
        let entries: Vec<_> =
            lines.iter().zip(&styles).map(|(line, s)| (line.label.as_str(), Ok(*s))).collect();
        let top = self.legend(32.0, &entries) + 8.0;
        let bottom = top + HEIGHT;
        let xs = || lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x));
        let (first, last) = extremes(xs().chain(mark.map(|(at, _)| *at)));
        let across = if log.0 {
            Axis::logarithmic(first, last, LEFT, WIDTH - RIGHT)
        } else {
            Axis::between(first, last, LEFT, WIDTH - RIGHT)
        };
        let values = || lines.iter().flat_map(|l| l.points.iter());
        let claimed = || claims.iter().map(|(.., value)| *value);
        let (_, high) = extremes(values().map(|(_, s)| s.high).chain(claimed()));
        let (low, _) = extremes(values().map(|(_, s)| s.low).chain(claimed()).filter(|v| *v > 0.0));
        let up = if log.1 {
            Axis::logarithmic(low, high, bottom, top)
        } else {
            Axis::linear(high, bottom, top)
        };
        self.frame(chart, x, (&across, &up), (top, bottom), &distinct(xs()));
        if let Some((at, name)) = mark {
            let x = across.place(*at);
            self.rule((x, top), (x, bottom), 0.5);
            let (anchor, gap) = if x > WIDTH * 0.7 { ("end", -5.0) } else { ("start", 5.0) };
            self.text(x + gap, top + 9.0, anchor, "faint", name);
        }
        for (line, style) in lines.iter().zip(&styles) {
            self.one_line(line, *style, &across, &up);
        }
        for (line, x, value) in claims {
            let colour = styles.get(*line).map_or("currentColor", |style| style.colour);
            self.hollow((across.place(*x), up.place(*value)), colour);
        }
        if claims.is_empty() {
            return bottom + 42.0;
        }
        self.hollow((LEFT + 5.0, bottom + 46.0), "currentColor");
        self.text(LEFT + 14.0, bottom + 50.0, "start", "faint", "the paper's ratio");
        bottom + 58.0
    }

    fn frame(
        &mut self,
        chart: &Chart,
        x: &str,
        (across, up): (&Axis, &Axis),
        (top, bottom): (f64, f64),
        xs: &[f64],
    ) {
        for tick in up.ticks() {
            let y = up.place(tick);
            self.rule((LEFT, y), (WIDTH - RIGHT, y), 0.13);
            self.text(LEFT - 6.0, y + 4.0, "end", "", &short(tick));
        }
        // Ticks at the measured values if there are few, and at round values otherwise.
        let ticks = if xs.len() <= 9 { xs.to_vec() } else { across.ticks() };
        let mut free = f64::MIN;
        for tick in ticks {
            let at = across.place(tick);
            self.rule((at, bottom), (at, bottom + 4.0), 0.7);
            let label = short(tick);
            let half = label.len() as f64 * LETTER / 2.0;
            if at - half > free {
                self.text(at, bottom + 16.0, "middle", "", &label);
                free = at + half + 3.0;
            }
        }
        self.rule((LEFT, bottom), (WIDTH - RIGHT, bottom), 0.7);
        self.rule((LEFT, top), (LEFT, bottom), 0.7);
        self.text((LEFT + WIDTH - RIGHT) / 2.0, bottom + 33.0, "middle", "", x);
        self.push(format_args!(
            "<text transform=\"translate(13 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (top + bottom) / 2.0,
            escape(&chart.y)
        ));
    }

    fn one_line(&mut self, line: &Line, style: Style, across: &Axis, up: &Axis) {
        let place = |(x, s): &(f64, Spread)| (across.place(*x), up.place(s.median));
        let path: Vec<String> = line
            .points
            .iter()
            .map(|point| {
                let (x, y) = place(point);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let dash = if style.dashed { " stroke-dasharray=\"5 3\"" } else { "" };
        self.push(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" \
             stroke-linejoin=\"round\"{dash}/>",
            path.join(" "),
            style.colour
        ));
        for point in &line.points {
            let ((x, y), spread) = (place(point), point.1);
            if spread.high > spread.low {
                self.error_bar((x, up.place(spread.low)), (x, up.place(spread.high)), style.colour);
            }
            let tip = format!("{}: {} at {}", line.label, short(spread.median), short(point.0));
            self.marker((x, y), style, &tip);
        }
    }

    fn bars(&mut self, chart: &Chart, bars: &[Bar], log: bool) -> f64 {
        let left = left_of(bars.iter().map(|bar| bar.label.as_str()));
        self.text(10.0, 15.0, "start", "title", &chart.title);
        let measured = || bars.iter().filter_map(|bar| bar.value.as_ref().ok());
        let (_, longest) = extremes(measured().map(|s| s.high));
        // A mark far beyond all bars would make the bars short, so the mark is drawn at the edge.
        let papers = || bars.iter().filter_map(|bar| bar.paper).map(|p| p.min(FAR * longest));
        let (_, high) = extremes(measured().map(|s| s.high).chain(papers()));
        let (low, _) =
            extremes(measured().map(|s| s.low).chain(papers()).filter(|value| *value > 0.0));
        // Room at the right for the number beside the longest bar.
        let to = WIDTH - RIGHT - 44.0;
        let along = if log {
            Axis::logarithmic(low / 2.0, high, left, to)
        } else {
            Axis::linear(high, left, to)
        };
        let top = 26.0;
        let bottom = top + bars.len() as f64 * BAR + 4.0;
        self.bar_frame(&along, left, (top, bottom), &chart.y);
        for (at, bar) in bars.iter().enumerate() {
            let middle = top + (at as f64 + 0.5) * BAR + 2.0;
            self.text(left - 7.0, middle + 4.0, "end", "", &bar.label);
            match &bar.value {
                Ok(spread) => self.one_bar(bar, *spread, (left, middle), &along, at),
                Err(why) => self.text(left + 6.0, middle + 4.0, "start", "missing", why),
            }
        }
        let mut end = bottom + 40.0;
        if bars.iter().any(|bar| bar.paper.is_some()) {
            end += 6.0;
            self.hollow((left + 5.0, end - 4.0), "currentColor");
            self.text(
                left + 14.0,
                end,
                "start",
                "faint",
                "where the bar would end by the paper's ratio",
            );
            end += 10.0;
        }
        end
    }

    fn bar_frame(&mut self, along: &Axis, left: f64, (top, bottom): (f64, f64), label: &str) {
        let mut free = f64::MIN;
        for tick in along.ticks() {
            let x = along.place(tick);
            self.rule((x, top), (x, bottom), 0.13);
            let text = short(tick);
            let half = text.len() as f64 * LETTER / 2.0;
            if x - half > free {
                self.text(x, bottom + 15.0, "middle", "", &text);
                free = x + half + 4.0;
            }
        }
        self.rule((left, top), (left, bottom), 0.7);
        self.rule((left, bottom), (WIDTH - RIGHT, bottom), 0.7);
        self.text((left + WIDTH - RIGHT) / 2.0, bottom + 31.0, "middle", "", label);
    }

    fn one_bar(
        &mut self,
        bar: &Bar,
        spread: Spread,
        (left, y): (f64, f64),
        along: &Axis,
        at: usize,
    ) {
        let style = style::of(&bar.label, at);
        let end = along.place(spread.median);
        let thick = 13.0;
        // Command records are hollow, as in lines: a tint within a border.
        let fill = if style.filled { 0.9 } else { 0.25 };
        self.push(format_args!(
            "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{thick}\" fill=\"{}\" \
             fill-opacity=\"{fill}\" stroke=\"{}\" stroke-width=\"1.2\"><title>{}</title></rect>",
            y - thick / 2.0,
            (end - left).max(0.5),
            style.colour,
            style.colour,
            escape(&format!("{}: {}", bar.label, short(spread.median)))
        ));
        let mut edge = end;
        if spread.high > spread.low {
            let (low, high) = (along.place(spread.low), along.place(spread.high));
            self.error_bar((low, y), (high, y), "currentColor");
            edge = edge.max(high);
        }
        if let Some(paper) = bar.paper {
            let x = along.place(paper).min(WIDTH - RIGHT - 44.0);
            if along.place(paper) > x + 1.0 {
                self.text(
                    x + 6.0,
                    y + 4.0,
                    "start",
                    "faint",
                    &format!("\u{25b7} {}", short(paper)),
                );
            } else {
                self.hollow((x, y), "currentColor");
            }
            if (x - edge).abs() < 50.0 {
                edge = edge.max(x + 4.0);
            }
        }
        self.text(edge + 6.0, y + 4.0, "start", "", &short(spread.median));
    }

    fn hollow(&mut self, (x, y): (f64, f64), colour: &str) {
        let points = [(x, y - 5.0), (x + 5.0, y), (x, y + 5.0), (x - 5.0, y)];
        let look =
            format!("fill=\"var(--ground, white)\" stroke=\"{colour}\" stroke-width=\"1.4\"");
        let shape = polygon(&points, &look);
        self.push(format_args!("{shape}</polygon>"));
    }

    fn stacks(&mut self, chart: &Chart, stacks: &[Stack], parts: &[String]) -> f64 {
        self.text(10.0, 15.0, "start", "title", &chart.title);
        let entries: Vec<_> = parts
            .iter()
            .enumerate()
            .map(|(at, part)| (part.as_str(), Err(style::part(at))))
            .collect();
        let top = self.legend(34.0, &entries) + 6.0;
        let left = left_of(stacks.iter().map(|stack| stack.label.as_str()));
        let longest = stacks.iter().map(|s| s.parts.iter().map(|p| p.max(0.0)).sum::<f64>());
        let along = Axis::linear(longest.fold(0.0, f64::max), left, WIDTH - RIGHT - 44.0);
        let bottom = top + stacks.len() as f64 * BAR + 4.0;
        self.bar_frame(&along, left, (top, bottom), &chart.y);
        for (at, stack) in stacks.iter().enumerate() {
            let y = top + (at as f64 + 0.5) * BAR + 2.0;
            self.text(left - 7.0, y + 4.0, "end", "", &stack.label);
            let mut sum = 0.0;
            for (part, value) in stack.parts.iter().enumerate() {
                let (from, to) = (along.place(sum), along.place(sum + value.max(0.0)));
                sum += value.max(0.0);
                let name = parts.get(part).map_or("", String::as_str);
                self.push(format_args!(
                    "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{}\" \
                     stroke=\"var(--ground, white)\" stroke-width=\"0.6\"><title>{}</title></rect>",
                    y - 7.0,
                    (to - from).max(0.0),
                    style::part(part),
                    escape(&format!("{}, {name}: {}", stack.label, short(*value)))
                ));
            }
            self.text(along.place(sum) + 6.0, y + 4.0, "start", "", &short(sum));
        }
        bottom + 40.0
    }
}

/// The left margin with room for the longest label.
fn left_of<'a>(labels: impl Iterator<Item = &'a str>) -> f64 {
    let longest = labels.map(|label| label.chars().count()).max().unwrap_or(0);
    (longest as f64 * LETTER + 16.0).clamp(60.0, 210.0)
}

/// A polygon's opening tag.
fn polygon(points: &[(f64, f64)], look: &str) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!("<polygon points=\"{}\" {look}>", points.join(" "))
}

fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
    if low > high { (1.0, 1.0) } else { (low, high) }
}

fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}
