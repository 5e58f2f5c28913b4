//! The legend.

use plotters::prelude::*;

use super::{Area, Drawn, FONT, SIZE, paint};
use crate::figure::{COLOURS, MethodStyle};

/// The width that names need beside a drawing.
pub(super) fn width<'a>(names: impl Iterator<Item = &'a str>) -> i32 {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    (7 * longest as i32 + 50).clamp(90, 260)
}

/// The mark of a method's dots; it changes where colours repeat, as in the page.
pub(super) fn mark(area: &Area<'_>, method: usize, (x, y): (i32, i32), paint: RGBColor) -> Drawn {
    let corners = |by: &[(i32, i32)]| Polygon::new(by.iter().map(|(a, b)| (x + a, y + b)).collect::<Vec<_>>(), paint);
    Ok(match method / COLOURS.len() % 4 {
        0 => area.draw(&Circle::new((x, y), 3, paint.filled())),
        1 => area.draw(&corners(&[(0, -4), (4, 3), (-4, 3)])),
        2 => area.draw(&corners(&[(-3, -3), (3, -3), (3, 3), (-3, 3)])),
        _ => area.draw(&corners(&[(0, -4), (4, 0), (0, 4), (-4, 0)])),
    }?)
}

/// One line or mark per entry: the method, its name, and whether it is drawn faint.
pub(super) fn legend(side: &Area<'_>, entries: &[(usize, String, bool)], styles: &[MethodStyle], marks: bool) -> Drawn {
    let step = (17_i32).min((SIZE.1 as i32 - 50) / entries.len().max(1) as i32).max(8);
    for (i, (method, name, faint)) in entries.iter().enumerate() {
        let plain = paint(styles, *method);
        let paint = plain.mix(if *faint { 0.45 } else { 1.0 });
        let y = 44 + step * i as i32;
        let mut x = 4;
        // The sample line has the same dash as the curve.
        let dash = styles.get(*method).map_or(&[][..], |style| style.dash);
        if marks {
            mark(side, *method, (17, y), plain)?;
        }
        while x < 30 && !marks {
            let (on, off) = match dash {
                [on, off, ..] => (*on as i32, *off as i32),
                _ => (26, 0),
            };
            let end = (x + on).min(30);
            side.draw(&PathElement::new(vec![(x, y), (end, y)], paint.stroke_width(2)))?;
            x = end + off.max(1);
        }
        let label = Text::new(name.clone(), (36, y - 7), (FONT, 13.min(step)).into_font().color(&BLACK));
        side.draw(&label)?;
    }
    Ok(())
}
