//! Draws the steps of a saga: one box below another, each with its compensation beside it. The drawing is inline SVG that the server
//! renders, with the colours of the style sheet.

use askama::Template;
use serde_json::Value;

use crate::values::{items, list, number, shown, text};

/// The width of a box, the width of a compensation, the gap between the two, the height of a line, and the gap between two boxes.
const BOX: u32 = 380;
const BESIDE: u32 = 240;
const GAP: u32 = 60;
const LINE: u32 = 20;
const BETWEEN: u32 = 30;
const MARGIN: u32 = 10;
/// The number of characters in a line. The definition below the drawing shows the full texts.
const BOX_CHARS: usize = 50;
const BESIDE_CHARS: usize = 30;

/// A drawing.
#[derive(Template, Debug, PartialEq)]
#[template(path = "parts/diagram.html")]
pub(crate) struct Diagram {
    title: String,
    width: u32,
    height: u32,
    boxes: Vec<Shape>,
    arrows: Vec<Arrow>,
}

#[derive(Debug, PartialEq)]
struct Shape {
    class: &'static str,
    x: u32,
    y: u32,
    width: u32,
    height: u32,
    lines: Vec<Line>,
}

#[derive(Debug, PartialEq)]
struct Line {
    x: u32,
    y: u32,
    text: String,
}

/// A line with an arrowhead at its end.
#[derive(Debug, PartialEq)]
struct Arrow {
    class: &'static str,
    from: (u32, u32),
    to: (u32, u32),
}

impl Diagram {
    /// Draws a definition as the API returns it.
    pub fn of(name: &str, definition: &Value) -> Self {
        let steps = items(definition, "steps");
        let mut diagram = Self {
            title: format!("Saga {name}: {} steps", steps.len()),
            width: BOX + GAP + BESIDE + 2 * MARGIN,
            height: MARGIN,
            boxes: Vec::new(),
            arrows: Vec::new(),
        };
        let mut start = vec![format!("starts on {}", list(definition, "start.on"))];
        start.extend(said("cancelled on", &list(definition, "cancel_on")));
        start.extend(limit(definition, "time limit"));
        diagram.add("start", start, BOX_CHARS);
        for (index, step) in steps.iter().enumerate() {
            let lines = vec![format!("{}. {}", index + 1, text(step, "name"))].into_iter().chain(about(step)).collect();
            diagram.follow();
            let (top, height) = diagram.add("step", lines, BOX_CHARS);
            if !step["compensation"].is_null() {
                diagram.undo(step, top, height);
            }
        }
        diagram.follow();
        diagram.add("end", vec!["completed".to_owned()], BOX_CHARS);
        diagram.height += MARGIN;
        diagram
    }

    /// Adds a box below the others. Returns its top and its height.
    fn add(&mut self, class: &'static str, lines: Vec<String>, chars: usize) -> (u32, u32) {
        let (top, x) = (self.height, MARGIN);
        let height = self.put(class, (x, top), BOX, lines, chars);
        self.height += height;
        (top, height)
    }

    fn put(&mut self, class: &'static str, (x, y): (u32, u32), width: u32, lines: Vec<String>, chars: usize) -> u32 {
        let count = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let height = LINE.saturating_mul(count) + MARGIN;
        let lines = lines.into_iter().zip(1..).map(|(line, n)| Line {
            x: x + MARGIN,
            y: y + n * LINE - 3,
            text: cut(&line, chars),
        });
        let lines = lines.collect();
        self.boxes.push(Shape { class, x, y, width, height, lines });
        height
    }

    /// Adds the arrow to the next box.
    fn follow(&mut self) {
        let middle = MARGIN + BOX / 2;
        self.arrows.push(Arrow { class: "next", from: (middle, self.height), to: (middle, self.height + BETWEEN) });
        self.height += BETWEEN;
    }

    /// Adds the compensation of a step, to the right of it.
    fn undo(&mut self, step: &Value, top: u32, height: u32) {
        let undo = &step["compensation"];
        let name = text(undo, "name");
        let mut lines = vec![if name.is_empty() { "undone by".to_owned() } else { format!("undone by {name}") }];
        lines.extend(published(undo));
        if undo["always"] == true {
            lines.push("also at the end".to_owned());
        }
        let x = MARGIN + BOX + GAP;
        let own = self.put("undo", (x, top), BESIDE, lines, BESIDE_CHARS);
        let middle = top + height.min(own) / 2;
        self.arrows.push(Arrow { class: "undone", from: (x - GAP, middle), to: (x, middle) });
        // The box of a compensation may be taller than that of its step.
        self.height = self.height.max(top + own);
    }
}

/// Describes what a step does and awaits.
fn about(step: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let required: Vec<String> = items(step, "require").iter().map(|it| text(it, "message")).collect();
    lines.extend(said("requires", &required.join("; ")));
    lines.extend(published(step));
    lines.extend(said("awaits", &list(step, "await.on")));
    lines.extend(said("fails on", &list(step, "await.fail_on")));
    lines.extend(limit(step, "time limit"));
    if text(step, "on_limit") == "continue" {
        lines.push("continues after its limit".to_owned());
    }
    if number(step, "delay_ms") > 0 {
        lines.push(format!("waits {}", duration(number(step, "delay_ms"))));
    }
    lines
}

fn said(what: &str, words: &str) -> Option<String> {
    (!words.is_empty()).then(|| format!("{what} {words}"))
}

fn published(of: &Value) -> Option<String> {
    let publish = &of["publish"];
    let commands = publish.as_array().map_or_else(|| std::slice::from_ref(publish), Vec::as_slice);
    let types: Vec<String> =
        commands.iter().map(|command| shown(&command["type"])).filter(|name| !name.is_empty()).collect();
    let program = (text(of, "action") == "program").then(|| "runs a function of a program".to_owned());
    program.or_else(|| said("publishes", &types.join(", ")))
}

fn limit(of: &Value, what: &str) -> Option<String> {
    let limit = number(of, "limit_ms");
    (limit > 0).then(|| format!("{what} {}", duration(limit)))
}

fn duration(millis: u64) -> String {
    match millis {
        ms if !ms.is_multiple_of(1_000) => format!("{ms} ms"),
        ms if ms.is_multiple_of(86_400_000) => format!("{} d", ms / 86_400_000),
        ms if ms.is_multiple_of(3_600_000) => format!("{} h", ms / 3_600_000),
        ms if ms.is_multiple_of(60_000) => format!("{} min", ms / 60_000),
        ms => format!("{} s", ms / 1_000),
    }
}

fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn order() -> Value {
        json!({
            "start": {"on": ["order_placed"]}, "limit_ms": 86_400_000,
            "steps": [
                {"name": "reserve", "publish": {"type": "reserve_stock"}, "compensation": {"name": "release", "publish": {"type": "release_stock"}, "always": true}},
                {"name": "pay", "publish": [{"type": "a"}, {"type": "b"}], "await": {"on": ["order_paid"], "fail_on": ["declined"]}, "limit_ms": 3_600_000},
                {"name": "rest", "delay_ms": 1500},
            ]
        })
    }

    #[test]
    fn every_step_has_a_box_below_the_one_before_and_what_undoes_it_stands_beside() {
        let diagram = Diagram::of("order", &order());
        let first = |class: &str| {
            diagram.boxes.iter().filter(|it| it.class == class).map(|it| it.lines[0].text.clone()).collect::<Vec<_>>()
        };
        assert_eq!(first("step"), ["1. reserve", "2. pay", "3. rest"]);
        assert_eq!(
            (first("start"), first("undo"), first("end")),
            (
                vec!["starts on order_placed".to_owned()],
                vec!["undone by release".to_owned()],
                vec!["completed".to_owned()]
            )
        );
        let below: Vec<_> = diagram.boxes.iter().filter(|it| it.class != "undo").collect();
        assert!(below.windows(2).all(|two| two[0].y + two[0].height < two[1].y), "{below:?}");
        assert!(diagram.boxes.iter().all(|it| it.y + it.height <= diagram.height && it.x + it.width <= diagram.width));
        let pay: Vec<&str> = below[2].lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(pay, ["2. pay", "publishes a, b", "awaits order_paid", "fails on declined", "time limit 1 h"]);
        assert_eq!(diagram.arrows.iter().filter(|arrow| arrow.class == "next").count(), 4);
    }

    #[test]
    fn names_are_text_and_never_markup_and_long_ones_end_in_dots() {
        let hostile = json!({"start": {"on": ["</text><script>x</script>"]}, "steps": [{"name": "n".repeat(200)}]});
        let drawn = Diagram::of("<b>", &hostile).to_string();
        assert!(!drawn.contains("<script>") && !drawn.contains("<b>") && !drawn.contains("style="), "{drawn}");
        assert!(drawn.contains("n…"), "{drawn}");
        assert_eq!(Diagram::of("x", &Value::Null).boxes.len(), 2, "a definition that cannot be read has no steps");
    }
}
