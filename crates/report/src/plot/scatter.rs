//! Points in a plane, coloured by class.

use plotters::prelude::*;

use super::{Area, Drawn, FONT, SQUARE};
use crate::figure::class_colour;

pub(super) fn scatter(area: &Area<'_>, title: &str, classes: &[String], points: &[(f64, f64, usize)]) -> Drawn {
    area.fill(&WHITE)?;
    let (plot, side) = area.split_horizontally(SQUARE.0 as i32 - 110);
    let bound = |of: &dyn Fn(&(f64, f64, usize)) -> f64| {
        let (low, high) = points.iter().fold((f64::MAX, f64::MIN), |(low, high), p| (low.min(of(p)), high.max(of(p))));
        let margin = 0.04 * (high - low).max(1e-9);
        low - margin..high + margin
    };
    let (across, up) = (bound(&|p| p.0), bound(&|p| p.1));
    let frame = Rectangle::new([(across.start, up.start), (across.end, up.end)], BLACK.mix(0.3));
    let mut chart = ChartBuilder::on(&plot).margin(12).caption(title, (FONT, 16)).build_cartesian_2d(across, up)?;
    let paint = |class: usize| {
        let (r, g, b) = class_colour(class, classes.len());
        RGBColor(r, g, b)
    };
    chart.draw_series(points.iter().map(|&(x, y, class)| Circle::new((x, y), 2, paint(class).mix(0.8).filled())))?;
    chart.plotting_area().draw(&frame)?;
    for (class, name) in classes.iter().enumerate().take(26) {
        let y = 40 + 17 * class as i32;
        side.draw(&Circle::new((8, y), 4, paint(class).filled()))?;
        let short: String = name.chars().take(13).collect();
        side.draw(&Text::new(short, (18, y - 7), (FONT, 12).into_font().color(&BLACK)))?;
    }
    if classes.len() > 26 {
        let text = format!("and {} more", classes.len() - 26);
        side.draw(&Text::new(text, (18, 40 + 17 * 26 - 7), (FONT, 12).into_font().color(&BLACK)))?;
    }
    Ok(())
}
