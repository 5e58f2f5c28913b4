use fedelity_kernels::{Conv, Isa, Plane};
use std::time::Instant;
fn gf(name: &str, fl: f64, mut f: impl FnMut()) {
    f();
    let mut best = f64::MAX; let t0 = Instant::now();
    while t0.elapsed().as_secs_f64() < 0.2 { let t = Instant::now(); f(); best = best.min(t.elapsed().as_secs_f64()); }
    println!("{name:40} best {:8.2} GFLOP/s", fl / best * 1e-9);
}
fn main() {
    let isa = std::env::args().nth(1).and_then(|n| Isa::from_name(&n)).unwrap_or(Isa::detect()); let l = isa.lanes();
    for (ic, oc, h, k, s, p) in [(3usize, 6usize, 32usize, 5usize, 1usize, 0usize), (6, 16, 14, 5, 1, 0), (3, 32, 32, 5, 1, 2), (32, 64, 16, 5, 1, 2), (3, 16, 32, 3, 1, 1), (16, 16, 32, 3, 1, 1), (16, 32, 32, 3, 2, 1),(16, 32, 32, 1, 2, 0), (32, 32, 16, 3, 1, 1), (32, 64, 16, 3, 2, 1), (64, 64, 8, 3, 1, 1), (512,512,4,3,1,1)] {
        let c = Conv::new(isa, (ic, oc), (k, s, p), Plane { height: h, width: h, halo: p }, 0).unwrap();
        let g = if ic >= 512 { 2 } else { 1 };
        let x = vec![0.5f32; g*ic * (h + 2 * p) * (h + 2 * p) * l]; let w = vec![0.1f32; c.weights()];
        let mut y = vec![0f32; g*oc * c.output().area() * l]; let dy = vec![0.1f32; g*oc * c.output_gradient().area() * l];
        let mut dx = vec![0f32; g*ic * h * h * l]; let mut dw = vec![0f32; w.len()]; let (mut pf, mut pb) = (w.clone(), w.clone());
        c.pack_forward(&mut pf, &w); c.pack_backward(&mut pb, &w);
        let fl = 2.0 * (c.multiply_adds() * l * g) as f64; let nm = format!("{ic}->{oc} {h}x{h} k{k} s{s}");
        gf(&format!("{nm} fwd"), fl, || c.forward(&mut y, &x, &pf, None, g));
        gf(&format!("{nm} wgrad"), fl, || c.weight_gradient(&mut dw, &x, &dy, g));
        gf(&format!("{nm} igrad"), fl, || c.input_gradient(&mut dx, &dy, &pb, g, false));
    }
}
