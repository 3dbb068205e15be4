//! The two pictures of a step as SVG, for documents: live bytes over operations, and the arena as a map.
//!
//! A page writes such a file too, of what it shows at the moment. This one is made without a browser, and shows the whole step.

use super::category::{Category, Stretch};
use super::html::escaped;
use super::step::{Live, PlacedStep};
use crate::text::bytes;
use gpumem_core::memory::budget::Line;
use gpumem_core::report::Device;
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 16.0;
/// The upper and the lower edge of each picture.
const CURVE: [f64; 2] = [64.0, 272.0];
const PHASES: [f64; 2] = [278.0, 294.0];
const MAP: [f64; 2] = [336.0, 606.0];
const INK: &str = "#1b1d21";
const SOFT: &str = "#5a606b";
const GRID: &str = "#e6e7e9";

/// Returns the picture.
pub fn of(step: &PlacedStep) -> String {
    let (legend, height) = legend(step);
    let mut out = String::new();
    let title = title(step);
    _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui,Segoe UI,Roboto,DejaVu Sans,sans-serif\" font-size=\"11\" role=\"img\">\n\
         <title>{}</title>\n<defs>{}</defs>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n",
        escaped(&title),
        hatches()
    );
    text(&mut out, (LEFT, 24.0), "font-size=\"16\" font-weight=\"600\"", &title);
    text(&mut out, (LEFT, 44.0), &format!("fill=\"{SOFT}\""), &subtitle(step));
    curve(&mut out, step);
    phases(&mut out, step);
    map(&mut out, step);
    out + &legend + "</svg>\n"
}

fn title(step: &PlacedStep) -> String {
    let mut title = format!("{}, batch {}", step.title, step.batch);
    if step.micro_batches > 1 {
        title += &format!(" in {} micro-batches", step.micro_batches);
    }
    title += &format!(", {}", step.precision);
    step.settings.iter().for_each(|setting| title += &format!(", {setting}"));
    title
}

fn subtitle(step: &PlacedStep) -> String {
    let peak = step.budget.peak as usize;
    let at = step.operations.get(peak).map(|operation| step.operation_name(operation)).unwrap_or_default();
    let mut subtitle = format!("arena {}, peak at operation {peak}: {at}", bytes(step.budget[Line::Arena]));
    if let Some((device, _)) = step.card {
        let total = bytes(step.budget[Line::Total]);
        subtitle += &format!("; {total} with the reserve, of {}", bytes(device.usable()));
        if let Device::Known(card) = device {
            subtitle += &format!(" on {}", card.short_name);
        }
    }
    subtitle
}

/// Writes a text with further attributes.
fn text(out: &mut String, (x, y): (f64, f64), attributes: &str, text: &str) {
    _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>", escaped(text));
}

fn line(out: &mut String, y: f64, attributes: &str) {
    let to = WIDTH - RIGHT;
    _ = writeln!(out, "<path d=\"M{LEFT} {y:.1}H{to}\" fill=\"none\" {attributes}/>");
}

/// Returns the fill of a category.
fn fill(category: Category) -> String {
    match category.look().is_hatched {
        true => format!("url(#hatch{})", category as usize),
        false => category.look().light.into(),
    }
}

fn hatches() -> String {
    let all = Category::ALL.into_iter().filter(|category| category.look().is_hatched);
    let pattern = |category: Category| {
        let (number, colour) = (category as usize, category.look().light);
        format!(
            "<pattern id=\"hatch{number}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect width=\"6\" \
             height=\"6\" fill=\"{colour}\"/><path d=\"M-1 7L7 -1M-7 7L1 -1M5 7L13 -1\" stroke=\"#fff\" stroke-width=\"1.5\"/></pattern>"
        )
    };
    all.map(pattern).collect()
}

/// Returns the horizontal position of an operation's beginning.
fn across(step: &PlacedStep, operation: usize) -> f64 {
    LEFT + operation as f64 / step.operations.len().max(1) as f64 * (WIDTH - LEFT - RIGHT)
}

/// Writes lines at powers of two, with their sizes.
fn grid(out: &mut String, most: u64, y: impl Fn(u64) -> f64) {
    let step = (most / 5).max(1).next_power_of_two();
    for size in (0..=most / step).map(|index| index * step) {
        line(out, y(size), &format!("stroke=\"{GRID}\""));
        let label = if size == 0 { "0".into() } else { bytes(size) };
        text(out, (LEFT - 6.0, y(size) + 3.5), &format!("text-anchor=\"end\" fill=\"{SOFT}\""), &label);
    }
}

/// Writes the live bytes of each category, one above the other. A column of a pixel shows its largest operation, so that no peak is lost.
fn curve(out: &mut String, step: &PlacedStep) {
    let most = step.budget[Line::Arena].max(1);
    let y = |size: u64| CURVE[1] - size as f64 / most as f64 * (CURVE[1] - CURVE[0] - 14.0);
    grid(out, most, y);
    let arena = Category::ALL.into_iter().filter(|category| !category.is_on_host());
    let mut areas: Vec<(Category, Vec<u64>)> = arena.map(|category| (category, live_of(step, category))).collect();
    areas.retain(|(_, sizes)| sizes.iter().any(|size| *size > 0));
    let columns = columns(step, |index| areas.iter().map(|(_, sizes)| sizes[index]).sum());
    let mut below = vec![0u64; columns.len()];
    for (category, sizes) in &areas {
        let above: Vec<u64> = columns.iter().zip(&below).map(|(column, below)| below + sizes[column.largest]).collect();
        let edges = |index: usize| [across(step, columns[index].first), across(step, columns[index].end)];
        let path = area(&edges, [&below, &above], y);
        _ = writeln!(out, "<path d=\"{path}\" fill=\"{}\"/>", fill(*category));
        below = above;
    }
    line(out, y(most), &format!("stroke=\"{INK}\" stroke-dasharray=\"5 3\""));
    let arena = format!("arena {}", bytes(most));
    text(out, (WIDTH - RIGHT, y(most) - 4.0), "text-anchor=\"end\" font-weight=\"600\"", &arena);
    let peak = step.budget.peak as usize;
    let x = (across(step, peak) + across(step, peak + 1)) / 2.0;
    _ = writeln!(out, "<path d=\"M{x:.1} {}V{}\" stroke=\"#0b62c4\" stroke-width=\"1.2\"/>", CURVE[0], MAP[1]);
    text(out, (LEFT + 4.0, CURVE[0] + 6.0), &format!("fill=\"{SOFT}\""), "live bytes");
}

/// Returns the outline of an area between two lines of steps. Each stretch of columns in which the lines differ has an outline of its own.
///
/// `edges` returns the left and the right edge of a column.
fn area(edges: &impl Fn(usize) -> [f64; 2], [below, above]: [&[u64]; 2], y: impl Fn(u64) -> f64) -> String {
    let mut path = String::new();
    let mut next = 0;
    while let Some(first) = (next..below.len()).find(|&index| above[index] > below[index]) {
        let end = (first..below.len()).find(|&index| above[index] == below[index]).unwrap_or(below.len());
        _ = write!(path, "M{:.1} {:.1}", edges(first)[0], y(below[first]));
        // Only steps up and down are written.
        let mut height = String::new();
        let mut step_to = |x: f64, size: u64| {
            let next = format!("{:.1}", y(size));
            if next != height {
                _ = write!(path, "H{x:.1}V{next}");
                height = next;
            }
        };
        (first..end).for_each(|index| step_to(edges(index)[0], above[index]));
        (first..end).rev().for_each(|index| step_to(edges(index)[1], below[index]));
        path.push('Z');
        next = end;
    }
    path
}

/// Operations that one column shows.
struct Column {
    first: usize,
    end: usize,
    /// The operation with the most live bytes.
    largest: usize,
}

/// Returns columns of a pixel or more. `size` returns the live bytes at an operation.
fn columns(step: &PlacedStep, size: impl Fn(usize) -> u64) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for index in 0..step.operations.len() {
        match columns.last_mut() {
            Some(last) if across(step, index) - across(step, last.first) < 1.0 => {
                last.end = index + 1;
                if size(index) > size(last.largest) {
                    last.largest = index;
                }
            }
            _ => columns.push(Column { first: index, end: index + 1, largest: index }),
        }
    }
    columns
}

/// Returns the live bytes of a category at each operation, with padding.
fn live_of(step: &PlacedStep, category: Category) -> Vec<u64> {
    let mut sizes = vec![0; step.operations.len()];
    for tensor in step.tensors.iter().filter(|tensor| tensor.category == category) {
        sizes[tensor.first..=tensor.last].iter_mut().for_each(|size| *size += tensor.room());
    }
    sizes
}

/// Writes the phases of the step, with their names where they have room.
fn phases(out: &mut String, step: &PlacedStep) {
    let all: Vec<Stretch> = step.operations.iter().map(|operation| operation.stretch).collect();
    let count = all.len();
    let loss = step.loss();
    let last_backward = all.iter().rposition(|stretch| *stretch == Stretch::Backward).map_or(loss, |last| last + 1);
    let after_loss = all.iter().rposition(|stretch| *stretch == Stretch::Loss).map_or(loss, |last| last + 1);
    let mut parts = vec![(0, loss, "#c9dcef", "forward")];
    if loss < count {
        parts.push((loss, after_loss, "#6b7280", "loss"));
        parts.push((after_loss, last_backward, "#f3d9b4", "backward"));
        parts.push((last_backward, count, "#e3cfe0", "update"));
    }
    for (from, to, colour, name) in parts.into_iter().filter(|(from, to, ..)| to > from) {
        let (x, width) = (across(step, from), across(step, to) - across(step, from));
        let [top, bottom] = PHASES;
        let height = bottom - top;
        _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{colour}\"/>"
        );
        if width > 8.0 + 6.2 * name.len() as f64 {
            text(out, (x + width / 2.0, bottom - 4.5), "text-anchor=\"middle\"", name);
        }
    }
    text(out, (LEFT, PHASES[1] + 14.0), &format!("fill=\"{SOFT}\""), "operation 0");
    let last = format!("{}", count.saturating_sub(1));
    text(out, (WIDTH - RIGHT, PHASES[1] + 14.0), &format!("text-anchor=\"end\" fill=\"{SOFT}\""), &last);
}

/// Writes a rectangle for each tensor of the arena: its live range across, its offset upwards. Those of a category are one path.
fn map(out: &mut String, step: &PlacedStep) {
    let most = step.budget[Line::Arena].max(1);
    let y = |offset: u64| MAP[1] - offset as f64 / most as f64 * (MAP[1] - MAP[0]);
    grid(out, most, y);
    let mut labels: Vec<(&Live, f64)> = Vec::new();
    for category in Category::ALL.into_iter().filter(|category| !category.is_on_host()) {
        let mut path = String::new();
        for tensor in step.tensors.iter().filter(|tensor| tensor.category == category && tensor.bytes > 0) {
            let (x, width) = (across(step, tensor.first), across(step, tensor.last + 1) - across(step, tensor.first));
            let (top, bottom) = (y(tensor.offset + tensor.room()), y(tensor.offset));
            // A gap shows that neighbours are two tensors.
            let gap = if bottom - top > 4.0 { 0.7 } else { 0.0 };
            let height = (bottom - top - gap).max(0.4);
            _ = write!(path, "M{x:.1} {top:.1}h{:.1}v{height:.1}h-{0:.1}z", width.max(0.6));
            if height > 12.0 && width > 60.0 {
                labels.push((tensor, width));
            }
        }
        if !path.is_empty() {
            _ = writeln!(out, "<path d=\"{path}\" fill=\"{}\"/>", fill(category));
        }
    }
    for (tensor, width) in labels {
        let middle = (y(tensor.offset) + y(tensor.offset + tensor.room())) / 2.0;
        label(out, (across(step, tensor.first) + 4.0, middle + 3.5), tensor, width - 8.0);
    }
    text(out, (LEFT + 4.0, MAP[0] - 6.0), &format!("fill=\"{SOFT}\""), "arena: offset against operation");
}

/// Writes the longest end of a tensor's name that fits.
fn label(out: &mut String, place: (f64, f64), tensor: &Live, width: f64) {
    let fits = |text: &&str| text.chars().count() as f64 * 6.2 < width;
    let ends = tensor.name.match_indices('.').map(|(dot, _)| &tensor.name[dot + 1..]);
    let Some(shown) = std::iter::once(tensor.name.as_str()).chain(ends).find(fits) else { return };
    let colour = tensor.category.look().light;
    let channel = |at: usize| f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap_or(0)) / 255.0;
    let luminance = 0.2126 * channel(1).powf(2.2) + 0.7152 * channel(3).powf(2.2) + 0.0722 * channel(5).powf(2.2);
    let ink = if luminance > 0.3 { "#101215" } else { "#fff" };
    if tensor.category.look().is_hatched {
        let width = shown.chars().count() as f64 * 6.2;
        let (x, y) = (place.0 - 2.0, place.1 - 10.0);
        _ = writeln!(out, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"13\" fill=\"{colour}\"/>");
    }
    text(out, place, &format!("fill=\"{ink}\""), shown);
}

/// Returns the categories that the step has, and the height of the whole picture.
fn legend(step: &PlacedStep) -> (String, f64) {
    let mut out = String::new();
    let (mut x, mut y) = (LEFT, MAP[1] + 26.0);
    for category in Category::ALL {
        let has = |tensor: &Live| tensor.category == category && tensor.bytes > 0;
        if category.is_on_host() || !step.tensors.iter().any(has) {
            continue;
        }
        let name = category.look().name;
        let width = 32.0 + 6.2 * name.len() as f64;
        if x + width > WIDTH - RIGHT {
            (x, y) = (LEFT, y + 18.0);
        }
        _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" fill=\"{}\"/>",
            y - 9.5,
            fill(category)
        );
        text(&mut out, (x + 16.0, y), "", name);
        x += width;
    }
    (out, y + 14.0)
}
