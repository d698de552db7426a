// How the report looks, and the few lines of script that show the values under the pointer.
#include "train/report/page.h"

namespace annulus {

const char* const kReportStyle = R"css(
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1b2130;--soft:#5d6779;--line:#dfe3ea;--grid:#e9ecf1;
--bad:#b42318;--good:#0b7a55;--c0:#2360c8;--c1:#c9560c;--c2:#0c8465;--c3:#8638bd;--c4:#9a7010;--c5:#bd2f63;--c6:#1f7f9e;--c7:#6a7280}
@media(prefers-color-scheme:dark){:root{--bg:#0f1217;--card:#171b22;--ink:#e7eaf0;--soft:#9aa5b6;--line:#2a313c;
--grid:#242a34;--bad:#ff8a80;--good:#4fd6a5;--c0:#74a9ff;--c1:#ff9f5f;--c2:#43cfa5;--c3:#cb97f7;--c4:#e5bd52;--c5:#ff83ae;--c6:#74c9e6;--c7:#aab3c1}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1280px;margin:0 auto;padding:20px 16px 40px}
header{display:flex;flex-wrap:wrap;gap:4px 12px;align-items:baseline;margin-bottom:14px}
h1{font-size:24px;line-height:1.25;margin:0;overflow-wrap:anywhere}
h2{font-size:17px;margin:28px 0 10px}
h3{font-size:15px;margin:0;font-weight:600}
header p{margin:0;color:var(--soft);overflow-wrap:anywhere}
.state{font-size:13px;font-weight:600;padding:2px 10px;border-radius:99px;border:1px solid currentColor;color:var(--soft);white-space:nowrap}
.state.good{color:var(--good)}.state.bad{color:var(--bad)}.state.live{color:var(--c0)}
.alarm{border-left:4px solid var(--bad);background:var(--card);padding:10px 14px;margin:0 0 14px;border-radius:6px;overflow-wrap:anywhere}
.bar{height:6px;border-radius:3px;background:var(--line);overflow:hidden;margin:0 0 16px}
.bar i{display:block;height:100%;background:var(--c0)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(132px,1fr));gap:10px;margin:0 0 16px;padding:0}
.tiles div,.chart,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tiles div{padding:10px 14px}
.tiles dt{font-size:13px;color:var(--soft)}
.tiles dd{margin:0;font-size:20px;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums;white-space:nowrap}
.tiles small{display:block;white-space:normal;font-size:12.5px;font-weight:400;color:var(--soft)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));gap:12px}
.chart{margin:0;padding:12px 14px 10px;min-width:0;display:flex;flex-direction:column;justify-content:space-between}
.wide{grid-column:1/-1}
figcaption{display:flex;flex-wrap:wrap;gap:0 12px;align-items:baseline;min-height:24px}
figcaption p{margin:0;font-size:13px;color:var(--soft)}
.legend{display:flex;flex-wrap:wrap;gap:0 14px;margin-left:auto!important}
.key::before{content:"";display:inline-block;width:14px;height:3px;border-radius:2px;margin-right:6px;vertical-align:middle;background:var(--c)}
.key.dots::before{width:8px;height:8px;border-radius:50%}
.plot{position:relative;height:190px;margin:10px 8px 38px 50px;touch-action:pan-y;outline-offset:4px}
.wide .plot{height:290px}.js .plot{cursor:crosshair}
.plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:hidden}
.plot path{fill:none;vector-effect:non-scaling-stroke;stroke:var(--c);stroke-linejoin:round;stroke-linecap:round}
.plot .grid{stroke:var(--grid);stroke-width:1}
.plot .mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 4}
.plot .line{stroke-width:1.6}.plot .bold{stroke-width:2.4}.plot .faint{stroke-width:1;opacity:.4}.plot .dots{stroke-width:7}
.plot .band{stroke-width:1;fill:var(--c);opacity:.2}
.plot span{position:absolute;font-size:12px;color:var(--soft);white-space:nowrap;font-variant-numeric:tabular-nums}
.plot .y{right:100%;margin-right:7px;transform:translateY(-50%)}
.plot .x{top:100%;margin-top:4px;transform:translateX(-50%)}
.plot .xt{top:100%;margin-top:20px;right:0}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}
.cursor{position:absolute;top:0;bottom:0;width:1px;background:var(--soft);pointer-events:none}
.tip{position:absolute;top:6px;z-index:2;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:6px 10px;font-size:13px;line-height:1.45;pointer-events:none;box-shadow:0 4px 14px #0003;white-space:nowrap;font-variant-numeric:tabular-nums}
.tip b{font-weight:600}.tip i{font-style:normal;color:var(--c)}
.card{padding:4px 14px 10px;margin:0 0 12px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}
thead th{color:var(--soft);font-weight:500;font-size:13px}
details>summary{cursor:pointer;padding:8px 0 4px;font-weight:600}
pre{overflow-x:auto;font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;margin:6px 0;white-space:pre}
footer{color:var(--soft);font-size:13px;margin-top:24px}
)css";

const char* const kReportScript = R"js(
document.documentElement.className='js';
const data=JSON.parse(document.getElementById('data').textContent);
const text=v=>v==null?'–':Math.abs(v)>=1e6?v.toExponential(3):Number(v.toPrecision(5)).toString();
for(const c of data)for(const s of c.s){let x=0;s.x=s.x.map(d=>x+=d)}
for(const plot of document.querySelectorAll('.plot')){
  const c=data[plot.dataset.n];if(!c)continue;
  const cursor=document.createElement('div'),tip=document.createElement('div');
  cursor.className='cursor';tip.className='tip';let at=null;
  const near=(xs,x)=>{let a=0,b=xs.length-1;while(b-a>1){const m=a+b>>1;if(xs[m]<=x)a=m;else b=m}
    return b>0&&Math.abs(xs[b]-x)<Math.abs(xs[a]-x)?b:a};
  const show=x=>{
    const main=c.s.find(s=>s.x.length);if(!main)return;
    at=main.x[near(main.x,x)];tip.replaceChildren();
    const head=document.createElement('div');head.append(c.t+' '+at);tip.append(head);
    for(const s of c.s){if(!s.x.length)continue;
      const i=near(s.x,at),row=document.createElement('div'),mark=document.createElement('i'),value=document.createElement('b');
      mark.className='c'+s.c;mark.append('● ');value.append(text(s.y[i])+c.u);
      row.append(mark,s.n?s.n+' ':'',value,s.x[i]!=at?' at '+s.x[i]:'');tip.append(row)}
    const f=(at-c.a)/(c.b-c.a);cursor.style.left=100*f+'%';plot.append(cursor,tip);
    tip.style.left=f<.5?100*f+2+'%':'auto';tip.style.right=f<.5?'auto':100*(1-f)+2+'%'};
  const hide=()=>{cursor.remove();tip.remove();at=null};
  const move=e=>{const r=plot.getBoundingClientRect();show(c.a+(c.b-c.a)*(e.clientX-r.left)/r.width)};
  plot.addEventListener('pointermove',move);plot.addEventListener('pointerdown',move);
  plot.addEventListener('pointerleave',hide);plot.addEventListener('blur',hide);
  plot.addEventListener('keydown',e=>{
    const d={ArrowLeft:-1,ArrowRight:1}[e.key];if(!d)return;e.preventDefault();
    const xs=c.s.find(s=>s.x.length).x,i=at==null?(d>0?-1:xs.length):near(xs,at);
    show(xs[Math.max(0,Math.min(xs.length-1,i+d))])});
}
)js";

}  // namespace annulus
