// Filters the list of errors in an evaluation report. The report contains this text.
const f=document.forms[0],all=[...document.querySelectorAll('.m')];f.hidden=false;
f.oninput=()=>{const t=f.t.value.toLowerCase();for(const m of all)m.hidden=
!!((f.k.value&&m.dataset.k!==f.k.value)||(f.n.value&&m.dataset.n!==f.n.value)||
(t&&!m.textContent.toLowerCase().includes(t)));
for(const d of document.querySelectorAll('details.t'))d.hidden=!d.querySelector('.m:not([hidden])')};
f.onsubmit=()=>false;
