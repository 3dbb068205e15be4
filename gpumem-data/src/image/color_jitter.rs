//! `ColorJitter`, with the formulas of torchvision for tensors of bytes.

use super::Canvas;
use crate::draw::Draw;
use crate::error::{Error, Result};

impl Canvas {
    /// Changes brightness, contrast and saturation by random factors, and turns the hue by a random angle, in a random order.
    pub(super) fn jitter(&mut self, amounts: [f64; 3], hue: f64, draw: &mut Draw) -> Result<()> {
        if !matches!(self.channels, 1 | 3) {
            return Err(Error::setting(format!(
                "the colours of images of {} channels cannot be changed; leave `color_jitter` out, or take images of 1 or 3 channels",
                self.channels
            )));
        }
        let factors = amounts.map(|amount| draw.range((1.0 - amount).max(0.0), 1.0 + amount) as f32);
        let turn = draw.range(-hue.min(0.5), hue.min(0.5)) as f32;
        let mut order = [0, 1, 2, 3];
        for end in (1..order.len()).rev() {
            order.swap(end, draw.below(end + 1));
        }
        for change in order {
            match change {
                0 if amounts[0] > 0.0 => self.brighten(factors[0]),
                1 if amounts[1] > 0.0 => self.contrast(factors[1]),
                2 if amounts[2] > 0.0 => self.saturate(factors[2]),
                3 if hue > 0.0 => self.turn_hue(turn),
                _ => {}
            }
        }
        Ok(())
    }

    fn brighten(&mut self, factor: f32) {
        self.pixels.iter_mut().for_each(|byte| *byte = blend(*byte, 0.0, factor));
    }

    /// Blends with the mean grey of the image.
    fn contrast(&mut self, factor: f32) {
        let sum: u64 = match self.channels {
            3 => self.pixels.as_chunks::<3>().0.iter().map(|&rgb| u64::from(grey(rgb))).sum(),
            _ => self.pixels.iter().map(|&byte| u64::from(byte)).sum(),
        };
        let mean = (sum as f64 / (self.height * self.width).max(1) as f64) as f32;
        self.pixels.iter_mut().for_each(|byte| *byte = blend(*byte, mean, factor));
    }

    /// Blends each pixel with its grey. Images of one channel have no saturation.
    fn saturate(&mut self, factor: f32) {
        if self.channels == 3 {
            for rgb in self.pixels.as_chunks_mut::<3>().0 {
                let grey = f32::from(grey(*rgb));
                *rgb = rgb.map(|byte| blend(byte, grey, factor));
            }
        }
    }

    /// Turns the hue of each pixel. Images of one channel have none.
    fn turn_hue(&mut self, turn: f32) {
        if self.channels == 3 {
            for rgb in self.pixels.as_chunks_mut::<3>().0 {
                let [hue, saturation, value] = to_hsv(rgb.map(|byte| f32::from(byte) / 255.0));
                *rgb = to_rgb([(hue + turn).rem_euclid(1.0), saturation, value]).map(|share| (share * 255.999) as u8);
            }
        }
    }
}

/// Returns `factor * byte + (1 - factor) * other`, rounded down.
fn blend(byte: u8, other: f32, factor: f32) -> u8 {
    (factor * f32::from(byte) + (1.0 - factor) * other).clamp(0.0, 255.0) as u8
}

fn grey([red, green, blue]: [u8; 3]) -> u8 {
    (0.2989 * f32::from(red) + 0.587 * f32::from(green) + 0.114 * f32::from(blue)) as u8
}

fn to_hsv([red, green, blue]: [f32; 3]) -> [f32; 3] {
    let (largest, smallest) = (red.max(green).max(blue), red.min(green).min(blue));
    let range = largest - smallest;
    if range == 0.0 {
        return [0.0, 0.0, largest];
    }
    let sixth = if largest == red {
        (green - blue) / range
    } else if largest == green {
        2.0 + (blue - red) / range
    } else {
        4.0 + (red - green) / range
    };
    [(sixth / 6.0).rem_euclid(1.0), range / largest, largest]
}

fn to_rgb([hue, saturation, value]: [f32; 3]) -> [f32; 3] {
    let sixth = (hue * 6.0).floor();
    let rest = hue * 6.0 - sixth;
    let low = (value * (1.0 - saturation)).clamp(0.0, 1.0);
    let falling = (value * (1.0 - saturation * rest)).clamp(0.0, 1.0);
    let rising = (value * (1.0 - saturation * (1.0 - rest))).clamp(0.0, 1.0);
    match sixth as u32 % 6 {
        0 => [value, rising, low],
        1 => [falling, value, low],
        2 => [low, value, rising],
        3 => [low, falling, value],
        4 => [rising, low, value],
        _ => [value, low, falling],
    }
}

#[cfg(test)]
mod tests {
    use super::{Canvas, to_hsv, to_rgb};
    use crate::draw::Draw;
    use crate::image::Transforms;

    fn canvas(bytes: &[u8], channels: usize) -> Canvas {
        let mut canvas = Canvas::default();
        canvas.load_pixels(bytes, [channels, 1, bytes.len() / channels]).unwrap();
        canvas
    }

    #[test]
    fn single_changes_are_those_of_torchvision() {
        let changed = |change: fn(&mut Canvas)| {
            let mut canvas = canvas(&[10, 20, 30, 200, 100, 50], 3);
            change(&mut canvas);
            canvas.pixels
        };
        // By hand, from the formulas of torchvision.transforms._functional_tensor: the greys are 18 and 124, their mean 71.
        assert_eq!(changed(|canvas| canvas.brighten(1.5)), [15, 30, 45, 255, 150, 75]);
        assert_eq!(changed(|canvas| canvas.contrast(0.5)), [40, 45, 50, 135, 85, 60]);
        assert_eq!(changed(|canvas| canvas.saturate(0.0)), [18, 18, 18, 124, 124, 124]);
        // A third of the circle: red becomes green.
        assert_eq!(changed(|canvas| canvas.turn_hue(1.0 / 3.0))[3..], [50, 200, 100]);
    }

    #[test]
    fn hue_there_and_back() {
        for rgb in [[0.1, 0.5, 0.9], [0.9, 0.5, 0.1], [0.5, 0.9, 0.1], [0.3, 0.3, 0.3], [0.7, 0.1, 0.7], [0.0; 3]] {
            let back = to_rgb(to_hsv(rgb));
            assert!(back.iter().zip(rgb).all(|(a, b)| (a - b).abs() < 1e-5), "{rgb:?} {back:?}");
        }
    }

    #[test]
    fn jitter_depends_on_the_draw_and_leaves_nothing_at_zero() {
        let bytes = [10, 20, 30, 200, 100, 50];
        let jittered = |transforms: &Transforms, index| {
            let mut canvas = canvas(&bytes, 3);
            canvas.apply(transforms, &mut Draw::new(1, 0, index)).unwrap();
            canvas.pixels
        };
        let strong = Transforms::new().color_jitter(0.4, 0.4, 0.4, 0.1);
        assert_eq!(jittered(&strong, 1), jittered(&strong, 1));
        assert_ne!(jittered(&strong, 1), jittered(&strong, 2));
        assert_eq!(jittered(&Transforms::new().color_jitter(0.0, 0.0, 0.0, 0.0), 1), bytes);
        let error = canvas(&bytes, 2).apply(&strong, &mut Draw::new(0, 0, 0)).unwrap_err().to_string();
        assert_eq!(
            error,
            "the colours of images of 2 channels cannot be changed; leave `color_jitter` out, or take images of 1 or 3 channels"
        );
    }
}
